"""Containers are held to the conformance suite, all of it."""

from __future__ import annotations

import pytest
from agentenv.sandboxes.conformance.catalogue import CHECKS
from agentenv.sandboxes.conformance.expectations import HOLDS, contradictions, expectation
from agentenv.testing.contracts.sandbox_conformance import SandboxConformance


class TestDockerConformance(SandboxConformance):
    factory = "docker"

    @pytest.fixture
    def provider(self, docker_provider, engine, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", engine)  # for the harnesses that checks start
        return docker_provider

    def test_nothing_is_excused(self, provider):
        """This engine limits everything."""
        identity = provider.identity()
        assert contradictions(identity) == []
        assert {name for name in CHECKS if expectation(name, identity) != HOLDS} == set()
