"""Which tests of sandboxes are the default tier's: those of the default kind. The rest is `make test-sandboxes`."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
OF_OTHER_KINDS = {
    "test_conformance",
    "test_egress",
    "test_egress_body",
    "test_egress_ends",
    "test_egress_tls",
    "test_landlock",
    "test_namespaces",
    "test_pool",
    "test_same_grades",
    "test_unconfined",
    "test_users",
}
"""Modules about other kinds than bubblewrap, or that run for long on all of them."""
OTHER_KINDS = {"namespaces", "landlock", "none"}
"""As parameters of a test."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them before the tiers are told apart."""
    for item in items:
        if item.path.parent == HERE and (item.path.stem in OF_OTHER_KINDS or parameters(item) & OTHER_KINDS):
            item.add_marker(pytest.mark.sandboxes)


def parameters(item: pytest.Item) -> set[str]:
    """Give the names a test was parametrised with."""
    call = getattr(item, "callspec", None)
    return set() if call is None else set(call.id.split("-"))
