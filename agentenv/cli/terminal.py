"""What reaches a terminal only says something, whoever wrote it: models, tools, tasks, suites, engines."""

from __future__ import annotations

import re

from agentenv.toolkit.output import visible

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Unicode's ``Bidi_Control``: they show text in another order than it has."""
_MORE = re.compile(f"[\r\u2028\u2029{_BIDI}]")
_IN_JSON = re.compile(f"[\x7f-\x9f\ud800-\udfff\u2028\u2029{_BIDI}]")
"""JSON itself escapes what is below a space."""


def harmless(text: str) -> str:
    r"""Write as escapes what would do something else to a terminal than show itself; line feeds and tabs stay.

    >>> harmless("a\tb\r\x1b[2J\n\x9b")
    'a\tb\\r\\x1b[2J\n\\x9b'
    """
    return _MORE.sub(lambda found: ascii(found[0])[1:-1], visible(text))


def harmless_json(text: str) -> str:
    """Do the same to JSON, which has the same meaning after it."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
