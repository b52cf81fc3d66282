"""What the policy is shown of an answer to ``http``: status, the fields that matter, text, or what the bytes are."""

from __future__ import annotations

import codecs
import hashlib
from email.message import Message

from agentenv.core.blobs import BlobSink
from agentenv.core.tool import Result
from agentenv.toolkit.off_loop import PIECE
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
_ENCODINGS = frozenset(
    {"ascii", "utf-8", "utf-16", "utf-16-le", "utf-16-be", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic"}
    | {"gb2312", "gbk", "gb18030", "big5", "big5hkscs", "euc_jp", "iso2022_jp", "shift_jis", "euc_kr"}
    | {f"iso8859-{part}" for part in range(1, 17)}
    | {f"cp{page}" for page in (866, 874, 932, 949, *range(1250, 1259))}
)
"""Those that pages are written in. Python knows others, of which some take for ever, or make what is no character.

Source: Encoding Standard (WHATWG), section 4.2.
"""


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
        pieces = [decoder.decode(reply.body[at : at + PIECE]) for at in range(0, len(reply.body), PIECE)]
        pieces.append(decoder.decode(b"", final=not reply.cut))  # a character broken by the cut is left out
    except UnicodeError:
        return None
    return None if any("\0" in piece for piece in pieces) else "".join(pieces)


def _charset(content_type: str) -> str:
    """Give the encoding of text that a content type names, else UTF-8."""
    described = Message()
    described["content-type"] = content_type[:_FIELD_CHARS]  # parsing takes time that grows with the square
    try:
        named = codecs.lookup(described.get_content_charset("utf-8")).name
    except (LookupError, ValueError):
        return "utf-8"
    return named if named in _ENCODINGS else "utf-8"


def _missing(reply: Reply) -> int:
    """Give the bytes that were not read, as far as the answer said how many there are."""
    length = reply.headers.get("content-length", "")
    return max(0, int(length) - len(reply.body)) if reply.cut and length.isdecimal() and len(length) < 16 else 0
