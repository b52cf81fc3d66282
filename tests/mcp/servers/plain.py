"""A small MCP server without any library, for servers that misbehave: what it does is named by the tool that is called.

Speaks revision 2025-11-25 over stdio. The arguments of the program change what it lists: ``duplicate``, ``huge``,
``endless``, ``heavy``, ``odd-names``, ``other``, ``no-schema``, ``old-schema``; or how it
starts: ``dies``, ``wrong-handshake``.
"""

import base64
import json
import os
import sys
import time

MODES = sys.argv[1:]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NONE = {"type": "object", "properties": {}}
STRUCTURED = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
DRAFT_3 = {"$schema": "http://json-schema.org/draft-03/schema#"}
N_INSIDE = {"$defs": {"N": {"type": "integer"}}, "properties": {"n": {"$ref": "#/$defs/N"}}}
NUMBER = {"type": "object", "required": ["n"], **N_INSIDE}
ENDLESS = {"type": "object", "properties": {"n": {"type": "string", "pattern": "^(a+)+$"}}}
"""Matching it takes exponential time."""
STATE = {"counted": 0, "cancelled": [], "waiting": []}


def tool(name, schema=NONE, **more):
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema, **more}


TOOLS = [
    tool("echo", TEXT, annotations={"readOnlyHint": True}),
    tool("count"),
    tool("reports_error"),
    tool("hang"),
    tool("cancelled"),
    tool("die"),
    tool("flood_line"),
    tool("flood_messages"),
    tool("long_text"),
    tool("wrong_id"),
    tool("no_json"),
    tool("bad_params"),
    tool("broken"),
    tool("nonsense"),
    tool("media"),
    tool("structured", outputSchema=STRUCTURED),
    tool("breaks_schema", outputSchema=ENDLESS),
    tool("wrong_result", NUMBER, outputSchema=STRUCTURED),
    tool("no_result", outputSchema=STRUCTURED),
    tool("error_result", outputSchema=STRUCTURED),
    tool("changes_tools"),
    tool("closes_stdout"),
    tool("late", {"type": "object", "properties": {"n": {"type": "integer"}}}, annotations={"idempotentHint": True}),
]


def write(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def send(**message):
    write(json.dumps({"jsonrpc": "2.0", **message}))


def text(call, said, **more):
    send(id=call, result={"content": [{"type": "text", "text": said}], **more})


def listed():
    lists = {
        "duplicate": [tool("twin"), tool("twin")],
        "huge": [tool("huge", {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(10000)}})],
        "odd-names": [tool("fs.read/file"), tool("fs_read_file"), tool("x" * 100), tool("echo", TEXT)],
        "old-schema": [tool("odd", {**NONE, **DRAFT_3, "properties": {"a": {"type": "object", "required": True}}})],
        "no-schema": [tool("odd", {"type": "object", "properties": {"a": {"type": 7}}})],
        "other": [{**tool("echo", TEXT), "description": "Does something else."}, *TOOLS[1:]],
    }
    return next((tools for mode, tools in lists.items() if mode in MODES), TOOLS)


def count(call, arguments):
    STATE["counted"] += 1
    text(call, str(STATE["counted"]))


def die(call, arguments):
    sys.stderr.write("I am dying\n")
    sys.stderr.flush()
    os._exit(7)


def flood_line(call, arguments):
    while True:
        sys.stdout.write("x" * (1 << 20))


def flood_messages(call, arguments):
    while True:
        send(method="notifications/message", params={"level": "info", "data": 1})


def wrong_id(call, arguments):
    for other in (call + 1, call - 1, f"{call}x", None):
        send(id=other, result={"content": [{"type": "text", "text": "somebody else's"}]})


def no_json(call, arguments):
    for line in ("Starting up ...", "{" * 50, '{"jsonrpc": "2.0"}'):
        write(line)
    text(call, "after the noise")


def media(call, arguments):
    data = base64.b64encode(b"\x89PNG").decode()
    content = [
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "audio", "data": "!!!", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": data}},
        {"type": "resource_link", "uri": "file:///c", "name": "c"},
    ]
    send(id=call, result={"content": content})


def changes_tools(call, arguments):
    send(method="notifications/tools/list_changed")
    text(call, "changed")


def closes_stdout(call, arguments):
    os.close(1)
    os.close(2)
    time.sleep(1000)


def late(call, arguments):
    STATE["waiting"].append((call, str(arguments["n"])))
    if arguments["n"] == 0:  # the last asked is answered first
        while STATE["waiting"]:
            text(*STATE["waiting"].pop())


CALLS = {
    "echo": lambda call, arguments: text(call, arguments["text"]),
    "count": count,
    "reports_error": lambda call, arguments: text(call, "it went wrong", isError=True),
    "hang": lambda call, arguments: STATE["waiting"].append((call, "too late")),
    "cancelled": lambda call, arguments: text(call, json.dumps(STATE["cancelled"])),
    "die": die,
    "flood_line": flood_line,
    "flood_messages": flood_messages,
    "long_text": lambda call, arguments: text(call, "head" + "x" * 3_000_000 + "tail"),
    "wrong_id": wrong_id,
    "no_json": no_json,
    "bad_params": lambda call, arguments: send(id=call, error={"code": -32602, "message": "text must be short"}),
    "broken": lambda call, arguments: send(id=call, error={"code": -32603, "message": "internal trouble"}),
    "nonsense": lambda call, arguments: send(id=call, result={"content": "not a list"}),
    "media": media,
    "structured": lambda call, arguments: send(id=call, result={"content": [], "structuredContent": {"n": 3}}),
    "breaks_schema": lambda call, arguments: send(
        id=call, result={"content": [], "structuredContent": {"n": "a" * 40 + "!"}}
    ),
    "wrong_result": lambda call, arguments: text(call, "fine", structuredContent={"n": "one"}),
    "no_result": lambda call, arguments: text(call, "forgotten"),
    "error_result": lambda call, arguments: text(call, "there is no n", isError=True),
    "changes_tools": changes_tools,
    "closes_stdout": closes_stdout,
    "late": late,
}


def initialize(call, params):
    if "wrong-handshake" in MODES:
        return send(
            id=call,
            result={"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
        )
    info = {"name": "plain", "version": "1.2"}
    return send(id=call, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})


def list_tools(call, params):
    if "endless" in MODES:
        return send(id=call, result={"tools": [tool(f"t{time.monotonic_ns()}")], "nextCursor": "more"})
    if "heavy" in MODES:
        return send(
            id=call, result={"tools": [tool("t", {"type": "object", "title": "x" * 6_000_000})], "nextCursor": "more"}
        )
    return send(id=call, result={"tools": listed()})


def call_tool(call, params):
    CALLS[params["name"]](call, params.get("arguments") or {})


def give_up(params):
    """Take note, and answer too late: just before the next call is."""
    STATE["cancelled"].append(params["requestId"])
    if STATE["waiting"]:
        text(*STATE["waiting"].pop())


def main():
    if "dies" in MODES:
        sys.exit("no licence found")
    methods = {"initialize": initialize, "tools/list": list_tools, "tools/call": call_tool}
    for line in sys.stdin:
        message = json.loads(line)
        method, call, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "notifications/cancelled":
            give_up(params)
        elif call is not None and method in methods:
            methods[method](call, params)
        elif call is not None:
            send(id=call, error={"code": -32601, "message": "no such method"})


main()
