"""Word problems with their workings: the text, and the calculations in the order in which they are needed.

Every quantity is a whole number, so every answer is exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One calculation."""

    expression: str
    """As the calculator takes it."""
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question and how it is solved."""

    text: str
    steps: tuple[Step, ...]

    @property
    def answer(self) -> int:
        """Result of the last step."""
        return self.steps[-1].value


@dataclass(slots=True)
class Working:
    """Writes down calculations as they are made."""

    steps: list[Step] = field(default_factory=list[Step])

    def plus(self, *terms: int) -> int:
        """Add."""
        return self._note(" + ".join(map(str, terms)), sum(terms))

    def minus(self, a: int, b: int) -> int:
        """Subtract."""
        return self._note(f"{a} - {b}", a - b)

    def times(self, a: int, b: int) -> int:
        """Multiply."""
        return self._note(f"{a} * {b}", a * b)

    def problem(self, text: str) -> Problem:
        """Close the working under its question."""
        return Problem(text=text, steps=tuple(self.steps))

    def _note(self, expression: str, value: int) -> int:
        self.steps.append(Step(expression=expression, value=value))
        return value


PEOPLE = ("Ada", "Bilal", "Chen", "Dina", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jana", "Kofi", "Lena")
GOODS = ("pens", "lamps", "bolts", "tiles", "mugs", "ropes", "seeds", "stamps", "bricks", "candles", "bottles", "hooks")
CRATES = ("boxes", "crates", "bags", "trays", "cartons", "bins")

_FACTORS = range(12, 100)
_STRIDE = 3001
"""Coprime to the number of pairs, 88 * 88: successive indices give every pair once."""


def product(index: int) -> Problem:
    """Level 1: one product of two two-digit numbers. Indices below 7,744 give distinct ones."""
    place = (index * _STRIDE + 917) % (len(_FACTORS) ** 2)
    a, b = _FACTORS[place // len(_FACTORS)], _FACTORS[place % len(_FACTORS)]
    work = Working()
    work.times(a, b)
    return work.problem(f"What is {a} * {b}?")


def two_steps(rng: random.Random) -> Problem:
    """Level 2: two chained operations, in words."""
    return rng.choice(_TWO_STEPS)(rng)


def many_steps(rng: random.Random) -> Problem:
    """Level 3: four to six calculations that use one another's results."""
    facts, question, work = _story(rng, kinds=2)
    return work.problem(" ".join([*facts, question]))


def long_story(rng: random.Random) -> Problem:
    """Level 4: five to twelve calculations in a long story, many of whose numbers have nothing to do with them."""
    facts, question, work = _story(rng, kinds=rng.choice((3, 4)))
    told = list(facts)
    for idle in rng.sample(_idle_facts(rng), k=6):
        told.insert(rng.randint(0, len(told)), idle)
    return work.problem(" ".join([*told, question]))


def _left_over(rng: random.Random) -> Problem:
    a, b, c = rng.randint(12, 95), rng.randint(12, 95), rng.randint(20, 140)
    good, crate, work = rng.choice(GOODS), rng.choice(CRATES), Working()
    work.minus(work.times(a, b), c)
    return work.problem(f"A shop has {a} {crate} with {b} {good} each. It sells {c} {good}. How many {good} are left?")


def _plain_chain(rng: random.Random) -> Problem:
    a, b, c = rng.randint(12, 99), rng.randint(12, 99), rng.randint(101, 999)
    work = Working()
    if rng.random() < 0.5:
        work.plus(work.times(a, b), c)
        return work.problem(f"Multiply {a} by {b}, then add {c}. What is the result?")
    work.times(work.plus(a, c), b)
    return work.problem(f"Add {a} and {c}, then multiply by {b}. What is the result?")


def _journey(rng: random.Random) -> Problem:
    a, b, c = rng.randint(110, 480), rng.randint(3, 29), rng.randint(15, 99)
    work = Working()
    work.plus(work.times(a, b), c)
    return work.problem(
        f"{rng.choice(PEOPLE)} travels {a} km a day for {b} days, and {c} km on the last day. How many km in all?"
    )


def _tickets(rng: random.Random) -> Problem:
    a, b, c = rng.randint(13, 89), rng.randint(12, 70), rng.randint(12, 70)
    work = Working()
    work.times(a, work.plus(b, c))
    return work.problem(
        f"A ticket costs {a} dollars. {b} teachers and {c} pupils buy one each. How many dollars do they pay together?"
    )


_TWO_STEPS: tuple[Callable[[random.Random], Problem], ...] = (_left_over, _plain_chain, _journey, _tickets)

_Story = tuple[list[str], str, Working]


def _story(rng: random.Random, *, kinds: int) -> _Story:
    return rng.choice(_STORIES)(rng, kinds)


def _order(rng: random.Random, kinds: int) -> _Story:
    work, buyer, voucher = Working(), rng.choice(PEOPLE), rng.randint(11, 99)
    facts: list[str] = []
    parts: list[int] = []
    for good in rng.sample(GOODS, k=kinds):
        count, price = rng.randint(12, 95), rng.randint(5, 48)
        facts.append(f"{buyer} orders {count} {good} at {price} dollars apiece.")
        parts.append(work.times(count, price))
    facts.append(f"A voucher takes {voucher} dollars off the whole order.")
    work.minus(work.plus(*parts), voucher)
    return facts, "How many dollars does the order cost?", work


def _factory(rng: random.Random, kinds: int) -> _Story:
    work, faulty, good = Working(), rng.randint(21, 180), rng.choice(GOODS)
    facts: list[str] = []
    parts: list[int] = []
    for name in ("The first", "The second", "The third", "The fourth")[:kinds]:
        machines, hourly, hours = rng.randint(3, 9), rng.randint(14, 65), rng.randint(4, 12)
        facts.append(f"{name} hall runs {machines} machines for {hours} hours; each makes {hourly} {good} an hour.")
        parts.append(work.times(work.times(machines, hourly), hours))
    facts.append(f"Altogether {faulty} {good} are faulty and thrown away.")
    work.minus(work.plus(*parts), faulty)
    return facts, f"How many good {good} are made?", work


def _store_room(rng: random.Random, kinds: int) -> _Story:
    work, good, crate = Working(), rng.choice(GOODS), rng.choice(CRATES)
    start = rng.randint(120, 900)
    facts = [f"A store room holds {start} {good} in the morning."]
    stock = start
    for _ in range(kinds):
        crates, each, out = rng.randint(12, 60), rng.randint(12, 48), rng.randint(20, 110)
        facts.append(f"A lorry brings {crates} {crate} of {each} {good}, and afterwards {out} {good} are taken out.")
        stock = work.minus(work.plus(stock, work.times(crates, each)), out)
    return facts, f"How many {good} are in the store room in the evening?", work


def _savings(rng: random.Random, kinds: int) -> _Story:
    work, saver, gift = Working(), rng.choice(PEOPLE), rng.randint(20, 140)
    facts: list[str] = []
    parts: list[int] = []
    for season in ("spring", "summer", "autumn", "winter")[:kinds]:
        weeks, weekly = rng.randint(6, 13), rng.randint(12, 75)
        facts.append(f"In {season} {saver} saves {weekly} dollars a week for {weeks} weeks.")
        parts.append(work.times(weekly, weeks))
    facts.append(f"Then {gift} dollars go to a friend.")
    work.minus(work.plus(*parts), gift)
    return facts, f"How many dollars does {saver} have left of what was saved?", work


_STORIES: tuple[Callable[[random.Random, int], _Story], ...] = (_order, _factory, _store_room, _savings)


def _idle_facts(rng: random.Random) -> list[str]:
    """Sentences whose numbers have no part in any answer."""
    a, b = rng.sample(PEOPLE, k=2)
    return [
        f"{a} is {rng.randint(19, 71)} years old and has worked here since {rng.randint(1981, 2019)}.",
        f"The building has the number {rng.randint(2, 480)} and was painted in {rng.randint(1950, 2015)}.",
        f"On the way {b} counted {rng.randint(12, 90)} lamp posts and {rng.randint(3, 40)} dogs.",
        f"The telephone extension is {rng.randint(1000, 9999)}.",
        f"Bus {rng.randint(2, 99)} stops in front of the door every {rng.randint(6, 30)} minutes.",
        f"It was {rng.randint(8, 31)} degrees warm that day.",
        f"The lift carries {rng.randint(300, 900)} kg or {rng.randint(4, 12)} people.",
        f"Last year's catalogue had {rng.randint(40, 320)} pages.",
        f"{b} wrote it all down on page {rng.randint(2, 190)} of a blue notebook.",
    ]
