"""A tool of one's own: what cannot be one says which parameter is in the way."""

from __future__ import annotations

import pytest
from agentenv.errors import UsageError
from agentenv.toolkit import tool


def test_a_type_without_a_json_form_is_named_with_its_parameter() -> None:
    def shout(word: complex, loud: bool = False) -> str:
        """Shout."""
        return str(word)

    with pytest.raises(UsageError, match="parameter 'word': type complex has no JSON form"):
        tool(shout)
