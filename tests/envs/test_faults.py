"""What goes on record of an exception: whose fault, and its text without the secrets it quotes."""

from __future__ import annotations

import pytest
from agentenv.envs.faults import report_of, without_secrets
from agentenv.errors import PolicyServerFault
from agentenv.records.axes import FaultDomain
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("GET http://me:hunter2@host:8000/v1 failed", "GET http://***@host:8000/v1 failed"),
        ("http://token@host and https://a:b@c", "http://***@host and https://***@c"),
        ("postgres://u:p@ss@db/x", "postgres://***@db/x"),
        ("http://host/v1?mail=a@b.c", "http://host/v1?mail=a@b.c"),
        ("http://host/@scope/package", "http://host/@scope/package"),
        ("write to a@b.c", "write to a@b.c"),
    ],
)
def test_the_user_part_of_an_address_is_left_out(text: str, left: str) -> None:
    assert report_of(PolicyServerFault(text)).message == left


@pytest.mark.parametrize(
    "name", ["OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET", "API_KEY", "TOKEN", "DB_PASSWORD", "my_api_key"]
)
def test_secrets_of_the_environment_are_left_out_by_value(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "sk-abcdef0123")
    error = PolicyServerFault("401 for Authorization: Bearer sk-abcdef0123, and again sk-abcdef0123")
    assert report_of(error).message == "401 for Authorization: Bearer ***, and again ***"


def test_a_secret_at_the_cut_is_left_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is left out before the text is cut, or its first half would stay."""
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789")
    message = report_of(PolicyServerFault("x" * 1_993 + "hf_0123456789" + "y" * 100)).message
    assert len(message) == 2_000
    assert "hf_" not in message


def test_one_secret_inside_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "secret")
    monkeypatch.setenv("B_TOKEN", "my-secret-long")
    assert without_secrets("my-secret-long secret") == "*** ***"


def test_switches_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_TOKEN", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "falsehood")
    assert without_secrets("1 falsehood") == "1 falsehood"


@given(st.text())
def test_what_has_no_address_stays_as_it_is(text: str) -> None:
    if "://" not in text:
        assert without_secrets(text) == text


def test_whose_fault_it_was() -> None:
    assert report_of(RuntimeError("x")).domain is FaultDomain.HARNESS
    report = report_of(PolicyServerFault.permanent("gone"))
    assert (report.domain, report.error, report.retryable) == (FaultDomain.POLICY_SERVER, "PolicyServerFault", False)
    assert report_of(ValueError()).message == "ValueError"
