"""Long house documents, in which the few rules that matter stand among many that do not."""

from __future__ import annotations

import random
from collections.abc import Sequence

TOPICS = (
    "fields", "numbers", "history", "review", "naming", "archive",
    "releases", "contacts", "letters", "storage", "visitors", "calendar",
)  # fmt: skip
"""One document each, ``docs/TOPIC.md``."""

_PARAGRAPHS = 6
_SENTENCES = 4

_OPENINGS = (
    "Since the move to the new building",
    "After the audit of the third quarter",
    "By agreement with the regional offices",
    "For reasons explained in the minutes",
    "As long as nothing else is decided",
    "Whenever a colleague is on leave",
    "Following the letter of the board",
    "Where the older handbook is silent",
)
_SUBJECTS = (
    "the reading room",
    "the second archive",
    "every regional office",
    "the committee for forms",
    "the night shift",
    "the print shop",
    "our partner in the north",
    "the person on duty",
)
_VERBS = (
    "keeps a list of open questions",
    "sends a short note to the front desk",
    "reviews the drawings of the previous year",
    "collects remarks on the colour of the covers",
    "answers letters within nine working days",
    "orders paper for the coming season",
    "meets on the first Tuesday of the month",
    "counts the folders on the upper shelves",
)
_ENDS = (
    "so that nobody has to ask twice",
    "although this was discussed at length",
    "which has worked well so far",
    "until the next revision of this document",
    "and files a copy with the secretary",
    "unless the weather makes it impossible",
    "as the appendix explains in detail",
    "without any change to the present routine",
)


def write_documents(rng: random.Random, topics: Sequence[str], notes: Sequence[str]) -> dict[str, bytes]:
    """Write one document per topic and spread the notes over them, each in a paragraph of its own.

    Returns:
        Path to content, in the order of the topics; about 3.5 KB each.
    """
    holders: dict[str, list[str]] = {topic: [] for topic in topics}
    for note in notes:
        holders[rng.choice(list(topics))].append(note)
    return {f"docs/{topic}.md": _document(rng, topic, held).encode() for topic, held in holders.items()}


def _document(rng: random.Random, topic: str, notes: Sequence[str]) -> str:
    paragraphs = [_paragraph(rng) for _ in range(_PARAGRAPHS)]
    for note in notes:
        paragraphs.insert(rng.randint(1, len(paragraphs)), f"Rule for converted files. {note}")
    numbered = [f"{index}. {paragraph}" for index, paragraph in enumerate(paragraphs, start=1)]
    return f"# House document: {topic}\n\n" + "\n\n".join(numbered) + "\n"


def _paragraph(rng: random.Random) -> str:
    return " ".join(
        f"{rng.choice(_OPENINGS)} {rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_ENDS)}."
        for _ in range(_SENTENCES)
    )
