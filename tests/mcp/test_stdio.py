"""Servers over stdio, in a real sandbox, by a server that can do anything wrong.

Promises: what a tool says is an observation; what a server does wrong makes its own call unavailable and nothing else;
no answer is ever taken for another's; a server that died is started again and it is said what was lost; nothing of it
outlives the episode.
"""

from __future__ import annotations

import hashlib
import json

import pytest
from agentenv.core.deadline import Deadline, DeadlineReached
from agentenv.core.sandbox import Sandbox
from agentenv.errors import ConfigError, ToolFault
from agentenv.records.axes import CallStatus
from agentenv.toolkit.mcp import mcp_stdio

from tests.mcp.kit import described_as, episode, plain_server
from tests.toolkit.kit import calls_of

pytestmark = pytest.mark.mcp

LIMIT_S = 4.0
"""Of each call, where one is to go beyond it: what is answered at once is within it on a busy machine too."""


async def test_a_server_is_described(sandbox: Sandbox) -> None:
    described = await described_as(sandbox)
    assert (described.server, described.version, described.protocol) == ("plain", "1.2", "2025-11-25")
    echo = described.tools[0]
    assert (echo.name, echo.description, echo.parallel) == ("echo", "Does echo.", True)
    assert echo.parameters["required"] == ["text"]
    assert (await sandbox.usage()).processes == 0, "describing leaves no process behind"


async def test_text_errors_and_state(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        assert (await tools.call("echo", text="hä\n🎈")).text == "hä\n🎈"
        assert [(await tools.call("count")).text for _ in range(3)] == ["1", "2", "3"]
        failed = await tools.call("reports_error")
        assert (failed.status, failed.text) == (CallStatus.ERROR, "it went wrong")
    assert (await sandbox.usage()).processes == 0, "the server ends with the episode"


async def test_arguments_are_checked_by_schema_and_by_the_server(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        wrong = await tools.call("echo", text=3)
        assert wrong.status is CallStatus.INVALID_ARGUMENTS
        assert 'argument "text": expected a string, got the number 3' in wrong.text
        said = await tools.call("bad_params")
        assert said.status is CallStatus.INVALID_ARGUMENTS
        assert "text must be short" in said.text


async def test_protocol_errors_are_unavailable_and_spare_the_next_call(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        await tools.call("count")
        broken = await tools.call("broken")
        assert broken.status is CallStatus.UNAVAILABLE
        assert "error -32603 of the protocol: internal trouble" in broken.text
        odd = await tools.call("nonsense")
        assert odd.status is CallStatus.UNAVAILABLE
        assert "its answer cannot be used" in odd.text
        assert (await tools.call("count")).text == "2", "the server goes on"


async def test_patterns_of_results_are_not_matched(sandbox: Sandbox) -> None:
    """Matching this one would take for ever."""
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        odd = await tools.call("breaks_schema")
        assert (odd.status, json.loads(odd.text)) == (CallStatus.OK, {"n": "a" * 40 + "!"})


async def test_results_are_held_to_what_the_server_says_they_are(sandbox: Sandbox) -> None:
    """A result that breaks the promise is an error that shows all the same what came, and nothing for the grader."""
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        wrong = await tools.call("wrong_result", n=1)
        assert (wrong.status, wrong.value) == (CallStatus.ERROR, None)
        promise = "Error: the server broke its own promise about this tool's result"
        assert wrong.text == f'{promise}: at n: expected an integer, got the string "one". What it sent:\nfine'
        absent = await tools.call("no_result")
        assert absent.status is CallStatus.ERROR
        assert absent.text == f"{promise}: there is no structured content. What it sent:\nforgotten"
        reported = await tools.call("error_result")
        assert (reported.status, reported.text) == (CallStatus.ERROR, "there is no n")


async def test_references_in_schemas_are_followed(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        wrong = await tools.call("wrong_result", n="many")
        assert wrong.status is CallStatus.INVALID_ARGUMENTS
        assert 'argument "n": expected an integer, got the string "many"' in wrong.text
        assert '{"name": "wrong_result", "arguments": {"n": 1}}' in wrong.text
        (spec,) = (spec for spec in tools.toolbox.specs if spec.name == "wrong_result")
        assert spec.parameters == {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
        }


async def test_arguments_that_are_no_unicode_are_the_policys_mistake(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        await tools.call("count")
        odd = await tools.call("echo", text="a\ud800b")
        assert odd.status is CallStatus.INVALID_ARGUMENTS
        assert 'argument "text" has what JSON cannot carry: a lone surrogate' in odd.text
        assert (await tools.call("echo", text="\x1b[0m\0")).text == r"\x1b[0m\x00"
        assert (await tools.call("count")).text == "2", "the server is still the same"


async def test_a_server_that_dies_is_started_again(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        await tools.call("count")
        died = await tools.call("die")
        assert died.status is CallStatus.UNAVAILABLE
        assert "it ended with exit code 7" in died.text
        assert "I am dying" in died.text
        assert "what it kept in memory is lost" in died.text
        assert (await tools.call("count")).text == "1"


async def test_a_server_that_cannot_be_started_again_is_unavailable(sandbox: Sandbox) -> None:
    """It worked before, so what the policy did to it is part of the episode, not a fault."""
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        await tools.call("die")
        await sandbox.write("server.py", b"raise SystemExit(3)")
        for _ in range(2):
            gone = await tools.call("count")
            assert gone.status is CallStatus.UNAVAILABLE
            assert "could not be started again: it ended with exit code 3" in gone.text


async def test_a_call_that_hangs_is_stopped_and_its_late_answer_dropped(sandbox: Sandbox) -> None:
    """The server answers the cancelled call right before the next one: ids tell the two apart."""
    async with episode(await plain_server(sandbox, timeout_s=LIMIT_S), sandbox=sandbox) as tools:
        stopped = await tools.call("hang")
        assert stopped.status is CallStatus.TIMEOUT
        assert "after its limit of 4 s" in stopped.text
        assert (await tools.call("echo", text="mine")).text == "mine"
        assert len(json.loads((await tools.call("cancelled")).text)) == 1, "the server was told"


async def test_the_deadline_of_the_harness_passes_through_and_cancels(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        deadline = Deadline.after(2, "the tools of one action")
        with pytest.raises(DeadlineReached) as reached:
            await tools.toolbox.run(calls_of(("hang", {})), context=tools.context, deadline=deadline, refuse_after=None)
        assert reached.value.deadline is deadline
        assert len(json.loads((await tools.call("cancelled")).text)) == 1


async def test_answers_to_others_are_nobodys(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox, timeout_s=LIMIT_S), sandbox=sandbox) as tools:
        assert (await tools.call("wrong_id")).status is CallStatus.TIMEOUT
        assert (await tools.call("echo", text="mine")).text == "mine"


async def test_calls_of_one_turn_run_at_once_where_the_server_says_so(sandbox: Sandbox) -> None:
    """The last is answered first, so each is under way while the others are; the record keeps their order."""
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        results = await tools.turn(*[("late", {"n": n}) for n in (2, 1, 0)])
        assert [result.text for result in results] == ["2", "1", "0"]
        assert [tool.spec.name for tool in tools.tools if tool.parallel] == ["echo", "late"]


async def test_lines_that_are_no_messages_are_passed_over(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox, timeout_s=LIMIT_S), sandbox=sandbox) as tools:
        assert (await tools.call("no_json")).text == "after the noise"
        assert "3 lines that are no message, such as: Starting up ..." in (await tools.call("hang")).text


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("flood_line", "a message of more than 16,777,216 bytes"),
        ("flood_messages", "more than 2,000 messages that nobody asked for"),
        ("closes_stdout", "it closed its output"),
    ],
)
async def test_floods_end_the_connection(sandbox: Sandbox, tool: str, said: str) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        flooded = await tools.call(tool)
        assert flooded.status is CallStatus.UNAVAILABLE
        assert said in flooded.text
        assert (await tools.call("echo", text="back")).text == "back"
    assert (await sandbox.usage()).processes == 0


async def test_long_text_is_cut_and_kept(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        result = await tools.call("long_text")
        assert result.text.startswith("headxxx")
        assert result.text.endswith("xxxtail")
        assert len(result.text) <= 4_000
        assert result.full_output is not None
        assert tools.blobs.contents[result.full_output.sha256] == b"head" + b"x" * 3_000_000 + b"tail"


async def test_what_is_no_text_is_described_and_kept(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        sha256 = hashlib.sha256(b"\x89PNG").hexdigest()
        assert (await tools.call("media")).text.splitlines() == [
            f"[image, image/png, 4 bytes, kept on record as {sha256}]",
            "[audio, audio/wav, 3 characters that are no base64, left out]",
            "[resource file:///a.txt, text/plain]",
            "inside",
            f"[resource file:///b, 4 bytes, kept on record as {sha256}]",
            "[link to resource file:///c; not read]",
        ]
        assert tools.blobs.contents[sha256] == b"\x89PNG"


async def test_structured_content_is_shown_and_handed_to_the_grader(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        result = await tools.call("structured")
        assert (result.text, result.value) == ('{"n": 3}', {"n": 3})


async def test_it_is_said_once_that_tools_have_changed(sandbox: Sandbox) -> None:
    async with episode(await plain_server(sandbox), sandbox=sandbox) as tools:
        texts = [(await tools.call("changes_tools")).text for _ in range(2)]
        note = "changed\n[the server 'plain' says that its tools have changed; those listed here stay as they are]"
        assert texts == [note, "changed"]


class TestStarting:
    @pytest.mark.parametrize(
        ("mode", "said"),
        [
            ("dies", "it ended with exit code 1"),
            ("wrong-handshake", "1999-01-01"),
            ("duplicate", "more than one tool called 'twin'"),
            ("huge", "at most 65,536 go into a prompt"),
            ("endless", "its list of tools has no end"),
            ("heavy", "its list of tools takes more than 16,777,216 bytes"),
            ("no-schema", "has no valid schema"),
            ("old-schema", "has no valid schema"),
        ],
    )
    async def test_a_server_that_cannot_be_used_is_refused_when_it_is_described(
        self, sandbox: Sandbox, mode: str, said: str
    ) -> None:
        with pytest.raises(ConfigError, match="MCP server 'plain'") as refused:
            await described_as(sandbox, mode)
        assert said in str(refused.value)
        assert (await sandbox.usage()).processes == 0

    async def test_one_that_is_no_longer_as_described_is_a_fault_before_the_policy_acts(self, sandbox: Sandbox) -> None:
        described = await plain_server(sandbox)
        other = mcp_stdio("plain", command=("python3", "server.py", "other"), described=described.described)
        with pytest.raises(ToolFault, match="changed since it was described: echo; describe it anew") as fault:
            async with episode(other, sandbox=sandbox):
                pass
        assert not fault.value.retryable
        assert (await sandbox.usage()).processes == 0

    async def test_one_that_is_not_there_is_a_fault(self, sandbox: Sandbox) -> None:
        described = await plain_server(sandbox)
        other = mcp_stdio("plain", command=("no-such-program",), described=described.described)
        with pytest.raises(ToolFault, match="MCP server 'plain': it ended with exit code 127"):
            async with episode(other, sandbox=sandbox):
                pass
