"""A user's suite in which every text that can be one is full of what acts on terminals, and of markup."""

from agentenv.core.task import Grade, Grader, GradeState, Task
from agentenv.core.tool import Result
from agentenv.records.axes import CallStatus, Outcome
from agentenv.records.constraints import CheckerSpec
from agentenv.records.episode import RewardComponent
from agentenv.toolkit.function_tool import tool
from agentenv.toolkit.prompts import rule, system
from agentenv.toolkit.suite import Variant, call, messages, scripted, seeded_suite

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
CONTROLS = "".join(map(chr, [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)])) + "\u2028\u2029" + BIDI
SEQUENCES = "\x1b[2J\x1b[1;1H\x1b]0;title\x07\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\\x1bP1$r\x1b\\\x9b31m\x9d0;t\x9c"
NOISE = f"{SEQUENCES}gone\b\b\b\bback\r{CONTROLS}[bold]markup[/] [link=http://a]here[/link] [/] :smile: \ud83d \udcff"
SPOKEN = NOISE.encode(errors="ignore").decode().strip()
"""What a policy can write."""
RULE = f"Never call danger. {SPOKEN}"


@tool
def shout(word: str = "") -> str:
    """Shout."""
    return NOISE + word


@tool
def danger() -> Result:
    """Break the rule."""
    return Result(text=NOISE, status=CallStatus.ERROR)


@tool
def broken() -> str:
    """Raise."""
    raise RuntimeError(NOISE)


def _grader(draw: Variant) -> Grader:
    async def grade(state: GradeState) -> Grade:
        if draw.seed == 3:
            raise ValueError(NOISE)
        part = RewardComponent(name=SPOKEN, value=1.0, source="environment", detail=NOISE)
        return Grade(components=(part,), outcome=Outcome.SUCCESS)

    return grade


@seeded_suite("shouting", size=6)
def suite(draw: Variant) -> Task:
    """Make a task; the seed decides what becomes of it."""
    if draw.seed == 4:
        raise ValueError(NOISE)
    parts = messages(system(NOISE), RULE)
    said = call("broken") if draw.seed == 2 else call("shout", word=SPOKEN)
    forbidden = CheckerSpec(name="forbidden-call", arguments={"tool": "danger"})
    return Task(
        id=draw.id + NOISE,
        messages=parts,
        tools=(shout, danger, broken),
        constraints=(rule(f"rule {NOISE}", RULE, forbidden, stated_in=parts),),
        grader=_grader(draw),
        scripts={"reference": scripted(said, call("danger"), call(SPOKEN, **{SPOKEN: SPOKEN}), f"Answer {SPOKEN}")},
    )
