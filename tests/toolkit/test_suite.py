"""Suites, and what authors of suites use.

Promises: a suite is decided by its seed alone; every task is checked and hashed before anyone plays it; a mistake of
the author is refused with what to do; worked examples are real and never a task of the suite; a whole suite of a
user's own takes at most 20 lines.
"""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from agentenv.core.hashing import content_hash, sha256_of
from agentenv.core.task import Grade, GradeState, OnText, ScriptView, Task
from agentenv.core.tool import Result
from agentenv.errors import ConfigError, TaskFault
from agentenv.records.axes import BudgetKind, BudgetOwner, CallStatus, Outcome, StopReason
from agentenv.records.budgets import Budget
from agentenv.records.constraints import Carrier, CheckerSpec
from agentenv.records.messages import Role
from agentenv.toolkit import tool
from agentenv.toolkit.suite import (
    SeededSuite,
    Variant,
    assistant,
    call,
    exact_answer,
    last_number,
    messages,
    nothing,
    rule,
    scripted,
    seeded_suite,
    system,
    turn_budget,
    user,
)
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tasks import sums


@tool
def double(number: int) -> str:
    """Double it.

    Args:
        number: What to double.
    """
    return str(2 * number)


@tool
def broken(number: int) -> Result:
    """Never works.

    Args:
        number: Anything.
    """
    return Result(text=f"cannot do {number}", status=CallStatus.ERROR)


def make_double(draw: Variant) -> Task:
    number = draw.rng().randint(0, 10**9)
    return Task(
        id=draw.id,
        messages=messages(system("Be brief."), f"Double {number}."),
        tools=(double,),
        grader=exact_answer(2 * number),
        scripts={"reference": scripted(call("double", number=number), f"It is {2 * number:,}.")},
    )


SUITE = SeededSuite("doubles", 50, make=make_double, levels=(1, 2), worked_examples=4)


def suite_of(change: Callable[[Task], Task]) -> SeededSuite:
    return SeededSuite("changed", 3, make=lambda draw: change(make_double(draw)))


def state(answer: str | None) -> GradeState:
    return GradeState(answer=answer, submitted=None, calls=(), stop_reason=StopReason.FINAL_ANSWER, sandbox=None)


class TestSeeds:
    def test_equal_seeds_give_equal_tasks(self):
        first, second = SUITE.task(7, 2), SUITE.task(7, 2)
        assert first.content_sha256 == second.content_sha256 != ""
        assert first.messages == second.messages
        assert first.id == "doubles/l2/000007"

    def test_seeds_beyond_the_size_wrap_around(self):
        assert SUITE.task(57).content_sha256 == SUITE.task(7).content_sha256

    def test_seeds_and_levels_differ(self):
        hashes = {SUITE.task(seed, level).content_sha256 for seed in range(50) for level in (1, 2)}
        assert len(hashes) == 100

    def test_streams_of_a_variant_are_independent(self):
        draw = Variant(suite="s", seed=1, level=1)
        assert draw.rng("a").random() == draw.rng("a").random()
        assert draw.rng("a").random() != draw.rng("b").random()

    def test_random_numbers_are_those_of_every_python(self):
        """Figures written down once; a Python that draws others would change every task."""
        rng = Variant(suite="s", seed=1, level=1).rng()
        drawn = [rng.randint(0, 999), rng.choice(range(100)), rng.sample(range(50), k=4), round(rng.random(), 6)]
        deck = list(range(8))
        rng.shuffle(deck)
        assert [*drawn, deck] == DRAWN

    @pytest.mark.parametrize(("seed", "level"), [(-1, 1), (0, 3), (0, 0)])
    def test_no_such_task(self, seed: int, level: int):
        with pytest.raises(ConfigError, match="doubles"):
            SUITE.task(seed, level)


DRAWN = [537, 43, [19, 31, 37, 18], 0.579779, [0, 2, 1, 5, 6, 4, 7, 3]]


class TestWorkedExamples:
    def test_they_are_played_against_the_tool(self):
        (first, second) = SUITE.demonstrations(2)
        assert [message.role for message in first] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
        number = int(first[0].text.removeprefix("Double ").removesuffix("."))
        assert first[2].text == str(2 * number)
        assert not any(message.pinned for message in first)
        assert first[2].call_id == first[1].calls[0].id
        ids = [message.id for message in (*first, *second)]
        assert len(set(ids)) == len(ids)
        assert {call.id for message in second for call in message.calls} == {"d1c0"}

    def test_they_are_never_tasks_of_the_suite(self):
        asked = {SUITE.task(seed).messages[1].text for seed in range(SUITE.size)}
        shown = {example[0].text for example in SUITE.demonstrations(4)}
        assert len(shown) == 4
        assert not asked & shown

    def test_none_are_none(self):
        assert SUITE.demonstrations(0) == ()

    async def test_they_can_be_had_inside_an_event_loop(self):
        assert len(SUITE.demonstrations(1)) == 1

    @pytest.mark.parametrize("n", [5, -1])
    def test_more_than_there_are(self, n: int):
        with pytest.raises(ConfigError, match="4 worked examples per level"):
            SUITE.demonstrations(n)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda task: replace(task, tools=(broken,), scripts={"reference": scripted(call("broken", number=1))}),
                "got an error",
            ),
            (
                lambda task: replace(task, scripts={"reference": scripted(call("dubble", number=1))}),
                "no tool of the task",
            ),
            (lambda task: replace(task, scripts={"reference": scripted("It is 1.")}), "does not pass its grader"),
            (lambda task: replace(task, scripts={"reference": scripted(call("double", number=1))}), "no final answer"),
            (lambda task: replace(task, files={"a": b""}), "needs a sandbox"),
        ],
    )
    def test_one_that_would_be_wrong_is_refused(self, change: Callable[[Task], Task], message: str):
        suite = replace(suite_of(change), worked_examples=1)
        with pytest.raises(ConfigError, match=message):
            suite.demonstrations(1)


class TestChecks:
    """Every task is checked when it is made; each row is one mistake and what the refusal says."""

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda task: replace(task, id=""), "needs an id"),
            (lambda task: replace(task, messages=()), "m0, m1"),
            (lambda task: replace(task, messages=(user("hi"),)), "m0, m1"),
            (lambda task: replace(task, messages=messages("hi", system("late"))), "only the first"),
            (lambda task: replace(task, messages=messages("hi", assistant("bye"))), "one the policy answers"),
            (lambda task: replace(task, tools=(double, double)), "two of tool 'double'"),
            (lambda task: replace(task, budgets=(turn_budget(3), turn_budget(4))), "two of budget 'task.turns'"),
            (
                lambda task: replace(
                    task, budgets=(Budget(kind=BudgetKind.TURNS, limit=3, owner=BudgetOwner.COLLECTOR),)
                ),
                "owner 'task'",
            ),
            (lambda task: replace(task, scripts={}), "no script 'reference'"),
            (lambda task: replace(task, files={"../x": b""}), "relative path"),
            (lambda task: replace(task, files={"/x": b""}), "relative path"),
            (lambda task: replace(task, files={"a\0b": b""}), "relative path"),
            (lambda task: replace(task, constraints=(moved(task),)), r"its carrier m1\[1:7\] reads 'ouble "),
            (lambda task: replace(task, constraints=(kept(task), kept(task))), "two of constraint 'keep'"),
        ],
    )
    def test_a_task_that_breaks_its_contract_is_refused(self, change: Callable[[Task], Task], message: str):
        with pytest.raises(ConfigError, match=message):
            suite_of(change).task(0)

    def test_what_follows_from_the_rest_is_filled_in(self):
        task = suite_of(lambda task: replace(task, files={"a/b.txt": b"x"})).task(0)
        assert task.needs_sandbox
        assert task.scripts["nothing"] is nothing
        assert task.content_sha256 == content_hash(task)
        assert not SUITE.task(0).needs_sandbox

    def test_a_task_without_a_grader_needs_no_scripts(self):
        task = suite_of(lambda task: replace(task, grader=None, scripts={})).task(0)
        assert set(task.scripts) == {"nothing"}

    def test_what_the_author_s_code_raises_is_the_task_s_fault(self):
        def fail(task: Task) -> Task:
            raise KeyError(task.id)

        with pytest.raises(TaskFault, match="'changed' could not make seed 2 of level 1: it raised KeyError") as caught:
            suite_of(fail).task(2)
        assert not caught.value.retryable

    @pytest.mark.parametrize(
        "settings",
        [
            {"name": ""},
            {"name": " a"},
            {"name": "a/b"},
            {"size": 0},
            {"levels": ()},
            {"levels": (2, 1)},
            {"levels": (1, 1)},
            {"worked_examples": -1},
        ],
    )
    def test_settings_that_mean_nothing_are_refused(self, settings: dict[str, object]):
        with pytest.raises(ConfigError):
            replace(SUITE, **settings)


def kept(task: Task):
    return rule("keep", task.messages[1].text, CheckerSpec(name="file-unchanged"), stated_in=task.messages)


def moved(task: Task):
    return replace(kept(task), carrier=Carrier(message_id="m1", start=1, end=7))


class TestRules:
    UNCHANGED = CheckerSpec(name="file-unchanged", arguments={"path": "a.csv"})

    @given(before=st.text(max_size=30), after=st.text(max_size=30))
    @example(before="\U0001f600 ", after="")
    def test_the_carrier_is_the_exact_span(self, before: str, after: str):
        """Constraint: the carrier is the message span that states it."""
        text = "do not touch a.csv"
        said = messages("hello", before + text + after)
        found = rule("keep", text, self.UNCHANGED, stated_in=said)
        assert found.carrier.message_id == "m1"
        assert said[1].text[found.carrier.start : found.carrier.end] == text

    @pytest.mark.parametrize("said", [("hi",), ("keep it, keep it",), ("keep it", "keep it")])
    def test_a_rule_stated_never_or_twice_is_refused(self, said: tuple[str, ...]):
        with pytest.raises(ConfigError, match="exactly once"):
            rule("keep", "keep it", self.UNCHANGED, stated_in=messages(*said))


class TestAnswers:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("The answer is 1776.", "1776"),
            ("37 * 48 = 1,776", "1776"),
            ("**1,776**", "1776"),
            ("1 776 or 1\u00a0776", "1776"),
            ("$1_776!", "1776"),
            ("It is -12", "-12"),
            ("It is \u221212.", "-12"),
            ("12-5", "5"),
            ("3.50", "3.50"),
            ("1,776.25 m", "1776.25"),
            ("first 1, then 2, then 3", "3"),
            ("[1,2,3]", "3"),
            ("12,34", "34"),
            ("room m12 has 7 chairs of type x9", "7"),
            ("5km", "5"),
            ("answer:8", "8"),
            ("1776\n\n", "1776"),
            ("4 = four", "4"),
        ],
    )
    def test_the_last_number_of_a_reply(self, text: str, number: str):
        assert last_number(text) == Decimal(number)

    @pytest.mark.parametrize("text", ["", "none", "m12", "-", "1" * 5000])
    def test_no_number(self, text: str):
        assert last_number(text) is None

    @given(st.text())
    def test_no_text_raises(self, text: str):
        found = last_number(text)
        assert found is None or found.is_finite()

    @given(number=st.integers(-(10**15), 10**15), before=st.text(alphabet="ab c\n", max_size=9))
    def test_every_whole_number_is_read_back(self, number: int, before: str):
        assert last_number(f"{before} {number:,}.") == number

    @pytest.mark.parametrize(
        ("expected", "answer", "right"),
        [
            (42, "It is 42.", True),
            (42, "It is 42.0", True),
            (42, "It is 43.", False),
            (42, "42, or rather 7", False),
            ("42", "forty-two: 42", True),
            (42, None, False),
            ("Ada Byron", "Let me see.\nAnswer: **ada  byron**.", True),
            ("Ada Byron", "Ada Byron\nor someone else", False),
            ("Ada Byron", "", False),
            ("Ada Byron", None, False),
        ],
    )
    async def test_exact_answers(self, expected: int | str, answer: str | None, right: bool):
        grade = await exact_answer(expected)(state(answer))
        assert grade.components[0].value == (1.0 if right else 0.0)
        assert grade.outcome is (Outcome.SUCCESS if right else Outcome.FAILURE)
        assert grade.components[0].source == "environment"
        assert str(expected) in grade.components[0].detail


class TestScripts:
    def test_turns_in_order_and_the_last_one_again(self):
        play = scripted(call("double", "I double it.", number=2), "Done.")
        turns = [play(ScriptView(turn=turn, prompt_text="", messages=(), seed=0)) for turn in range(3)]
        assert turns[0].text == "I double it."
        assert turns[0].calls == (("double", {"number": 2}),)
        assert turns[1] == turns[2]
        assert turns[1].calls == ()

    def test_an_empty_script_is_refused(self):
        with pytest.raises(ValueError, match="at least one turn"):
            scripted()


class TestSuiteHash:
    def test_settings_and_sources_count(self, tmp_path: Path):
        source = tmp_path / "words.py"
        source.write_text("WORDS = 1\n")
        hashes = {
            SUITE.sha256,
            replace(SUITE, size=51).sha256,
            replace(SUITE, name="other").sha256,
            replace(SUITE, levels=(1,)).sha256,
            replace(SUITE, sources=(source,)).sha256,
        }
        source.write_text("WORDS = 2\n")
        hashes.add(replace(SUITE, sources=(source,)).sha256)
        assert len(hashes) == 6
        source.write_bytes(b"WORDS = 2\r\n")
        assert replace(SUITE, sources=(source,)).sha256 in hashes

    def test_what_a_grader_expects_and_does_counts(self):
        task = SUITE.task(0)

        async def own(given: GradeState) -> Grade:
            return Grade(components=(), outcome=Outcome.UNKNOWN)

        graders = [exact_answer(1), exact_answer(2), exact_answer("x"), own, None]
        assert len({content_hash(replace(task, grader=grader)) for grader in graders}) == 5

    def test_every_field_that_decides_a_task_counts(self):
        task = SUITE.task(0)
        changes: list[dict[str, object]] = [
            {},
            {"id": "other"},
            {"messages": messages("hi")},
            {"tools": ()},
            {"files": {"a": b"1"}},
            {"files": {"a": b"2"}},
            {"needs_sandbox": True},
            {"network": ("example.org",)},
            {"budgets": (turn_budget(4),)},
            {"constraints": (kept(task),)},
            {"grade_timeout_s": 1.0},
            {"grade_on": frozenset({StopReason.COMPLETED})},
            {"on_text": OnText.OBSERVE},
        ]
        assert len({content_hash(replace(task, **change)) for change in changes}) == len(changes)
        assert content_hash(replace(task, scripts={})) == task.content_sha256

    def test_a_grader_may_carry_data(self):
        def grading(expected: int):
            async def grade(given: GradeState) -> Grade:
                return Grade(
                    components=(), outcome=Outcome.SUCCESS if given.answer == str(expected) else Outcome.FAILURE
                )

            return grade

        task = SUITE.task(0)
        hashes = [content_hash(replace(task, grader=grading(expected))) for expected in (1, 2, 1)]
        assert hashes[0] == hashes[2] != hashes[1]

    @pytest.mark.parametrize("value", [object(), {1: "a"}, float("nan"), float("inf"), [object()], print])
    def test_what_has_no_content_is_refused(self, value: object):
        with pytest.raises(ConfigError):
            sha256_of(value)

    def test_code_without_a_file_is_refused(self):
        namespace: dict[str, Callable[..., object]] = {}
        exec("def nowhere(): pass", namespace)
        with pytest.raises(ConfigError, match="define it in a file"):
            sha256_of(namespace["nowhere"])

    @given(st.dictionaries(st.text(), st.integers() | st.text() | st.binary() | st.lists(st.booleans())))
    def test_the_order_of_a_mapping_does_not_count(self, value: dict[str, object]):
        assert sha256_of(value) == sha256_of(dict(reversed(value.items())))


class TestExamples:
    def test_a_users_own_suite_takes_twenty_lines(self):
        assert len(Path(sums.__file__).read_text().splitlines()) <= 20
        task = sums.suite.task(3)
        assert task.messages[0].pinned
        assert len(sums.suite.demonstrations(5)) == 5

    def test_the_decorator_makes_a_suite(self):
        suite = seeded_suite("doubles", size=50, levels=(1, 2), worked_examples=4)(make_double)
        assert suite == SUITE

    @pytest.mark.parametrize("name", ["answers", "prompts", "scripts", "suite"])
    def test_doctests(self, name: str):
        module = importlib.import_module(f"agentenv.toolkit.{name}")
        assert doctest.testmod(module).failed == 0
