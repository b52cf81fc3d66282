from __future__ import annotations

from agentenv.toolkit.docstrings import parse


def test_nothing_is_an_empty_description() -> None:
    assert parse(None) == ("", {})
    assert parse("") == ("", {})


def test_description_ends_at_the_first_section_and_joins_lines() -> None:
    found = parse(
        """Read a file.

        Lines are joined
        within a paragraph.

        - lists
        - stay

        Args:
            path: Where it is,
                relative to the workspace.
            first_line (int): From 1.
            **extra: Any: with colons.

        Returns:
            other: not an argument.
        """
    )
    assert found.description == "Read a file.\n\nLines are joined within a paragraph.\n\n- lists\n- stay"
    assert found.arguments == {
        "path": "Where it is, relative to the workspace.",
        "first_line": "From 1.",
        "extra": "Any: with colons.",
    }


def test_text_before_any_argument_is_left_out() -> None:
    assert parse("Do.\n\nArgs:\n    as follows\n    a: One.").arguments == {"a": "One."}
