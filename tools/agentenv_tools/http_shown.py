"""What the policy is shown of an answer to ``http``: status, the fields that matter, text, or what the bytes are."""

from __future__ import annotations

import codecs
import hashlib
import io
from email.message import Message

from agentenv.core.blobs import BlobSink
from agentenv.core.tool import Result
from agentenv.toolkit.output import visible

from agentenv_tools.http_exchange import Reply

_FIELDS = (
    "content-type",
    "content-length",
    "content-encoding",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
)
"""Header fields that are shown."""
_FIELD_CHARS = 500


def shown(reply: Reply, blobs: BlobSink) -> Result:
    """Make the result; a body that is no text is described, and kept under its hash."""
    head = [f"{reply.status} {visible(reply.reason)}".rstrip()]
    if reply.redirects:
        head.append(f"url: {visible(reply.url)}")
    for name in _FIELDS:
        value = reply.headers.get(name, "")
        if value:
            head.append(f"{name}: {visible(value[:_FIELD_CHARS])}")
    text = _text(reply)
    spill = None
    if text is None:
        spill = blobs.put(reply.body)
        text = f"[{len(reply.body):,} bytes that are no text, kept on record; sha256 {spill.sha256}]"
    missing = _missing(reply)
    if reply.cut:
        text += f"\n[cut after {len(reply.body):,} bytes{f' of {len(reply.body) + missing:,}' if missing else ''}]"
    return Result(
        text="\n".join([*head, "", text or "[no body]"]),
        bytes_dropped=missing,
        full_output=spill,
        value={
            "status": reply.status,
            "url": reply.url,
            "bytes": len(reply.body),
            "sha256": hashlib.sha256(reply.body).hexdigest(),
        },
    )


def _text(reply: Reply) -> str | None:
    """Decode a body as it says it is encoded, else as UTF-8; None if that is no text."""
    if reply.headers.get("content-encoding", "identity").lower() != "identity":
        return None
    decoder = codecs.getincrementaldecoder(_charset(reply.headers.get("content-type", "")))("strict")
    try:
        text = decoder.decode(reply.body, final=not reply.cut)  # a character broken by the cut is left out
    except UnicodeError:
        return None
    return None if "\0" in text else text


def _charset(content_type: str) -> str:
    """Give the encoding of text that a content type names, else UTF-8."""
    described = Message()
    described["content-type"] = content_type
    named = described.get_content_charset("utf-8")
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=named)  # refuses codecs that make no text
    except (LookupError, ValueError):
        return "utf-8"
    return named


def _missing(reply: Reply) -> int:
    """Give the bytes that were not read, as far as the answer said how many there are."""
    length = reply.headers.get("content-length", "")
    return max(0, int(length) - len(reply.body)) if reply.cut and length.isdecimal() and len(length) < 16 else 0
