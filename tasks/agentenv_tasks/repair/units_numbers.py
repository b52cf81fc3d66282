"""Units over numbers: calendars, shares, numerals, buckets."""

from __future__ import annotations

import random

from agentenv_tasks.repair.unit import Unit, UnitMaker, check, unit


def calendar(rng: random.Random) -> Unit:
    """Days of months and years."""
    first = rng.choice((0, 1))
    days = [(rng.choice((1900, 2000, 2023, 2024)), rng.randint(1, 12), rng.randint(1, 28)) for _ in range(4)]
    return unit(
        "calendar_days",
        contract="""Gregorian calendar. `is_leap(year)`, `month_days(year, month)` (months from 1), and
        `day_of_year(year, month, day)`, which is $first on the first of January. A month outside 1 to 12 raises
        ValueError.""",
        source="""
        DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


        def is_leap(year):
            return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


        def month_days(year, month):
            if not 1 <= month <= 12:
                raise ValueError("month must be 1 to 12")
            return DAYS[month - 1] + (month == 2 and is_leap(year))


        def day_of_year(year, month, day):
            return sum(month_days(year, earlier) for earlier in range(1, month)) + day$shift
        """,
        bugs=(
            ("wrong operator", "year % 4 == 0 and (", "year % 4 == 0 or ("),
            ("missing case", "(year % 100 != 0 or year % 400 == 0)", "(year % 100 != 0)"),
            ("off-by-one", "DAYS[month - 1]", "DAYS[month % 12]"),
            ("wrong condition", "(month == 2 and is_leap(year))", "(month > 1 and is_leap(year))"),
            ("off-by-one", "range(1, month))", "range(1, month + 1))"),
            ("off-by-one", "+ day$shift", "+ day$wrong_shift"),
            ("boundary", "1 <= month <= 12", "0 <= month <= 12"),
        ),
        checks=(
            *(check("is_leap", year) for year in (1900, 2000, 2023, 2024, 2100, 1600)),
            *(
                check("month_days", year, month)
                for year, month in ((2023, 2), (2024, 2), (2024, 3), (2023, 12), (1900, 2), (2000, 2))
            ),
            check("month_days", 2023, 0),
            check("month_days", 2024, 13),
            check("month_days", 2022, 0),
            *(check("day_of_year", *day) for day in days),
            check("day_of_year", 2024, 12, 31),
            check("day_of_year", 2023, 1, 1),
        ),
        first=first,
        shift="" if first else " - 1",
        wrong_shift=" - 1" if first else " + 1",
    )


def shares(rng: random.Random) -> Unit:
    """Sums divided without losing a unit."""
    to_first = rng.random() < 0.5
    amounts = [(rng.randint(50, 999), [rng.randint(1, 7) for _ in range(rng.randint(3, 5))]) for _ in range(6)]
    return unit(
        "shares",
        contract="""`split(total, weights)` divides a whole amount into whole shares in proportion to the
        weights, rounded
        down; what is left over is handed out one by one to the $end shares. The shares always sum to the total. No
        weights at all, or weights that sum to zero, raise ValueError. `percent(part, whole)` is the percentage
        rounded
        to the nearest whole number, halves upwards; of a whole of 0 it is 0.""",
        source="""
        def split(total, weights):
            whole = sum(weights)
            if whole == 0:
                raise ValueError("the weights must not sum to zero")
            shares = [total * weight // whole for weight in weights]
            left = total - sum(shares)
            for i in range(left):
                shares[$place] += 1
            return shares


        def percent(part, whole):
            if whole == 0:
                return 0
            return (200 * part + whole) // (2 * whole)
        """,
        bugs=(
            ("wrong order of operations", "total * weight // whole for", "total // whole * weight for"),
            ("off-by-one", "for i in range(left):", "for i in range(left - 1):"),
            ("wrong end", "shares[$place] += 1", "shares[$wrong_place] += 1"),
            ("wrong operator", "shares[$place] += 1", "shares[$place] -= 1"),
            ("rounding", "(200 * part + whole) // (2 * whole)", "100 * part // whole"),
            ("missing return", "    return shares", "    return"),
            ("missing case", "    if whole == 0:\n        return 0\n", "    if whole < 0:\n        return 0\n"),
        ),
        checks=(
            *(check("split", total, weights) for total, weights in amounts),
            check("split", 100, [1, 1, 1]),
            check("split", 5, []),
            check("percent", 1, 8),
            check("percent", 2, 3),
            check("percent", 5, 8),
            check("percent", 1, 3),
            check("percent", 3, 0),
            check("percent", 0, 0),
        ),
        end="first" if to_first else "last",
        place="i" if to_first else "-1 - i",
        wrong_place="-1 - i" if to_first else "i",
    )


def numerals(rng: random.Random) -> Unit:
    """Roman numerals."""
    highest = rng.choice((1999, 2999, 3999))
    some = rng.sample(range(1, highest), k=5)
    return unit(
        "numerals",
        contract="""`to_roman(number)` writes 1 to $highest as a Roman numeral, with IV, IX, XL, XC, CD and CM;
        other numbers raise ValueError. `from_roman(text)` reads such a numeral, in either case.""",
        source="""
        PAIRS = (
            (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
            (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
        )
        VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


        def to_roman(number):
            if not 1 <= number <= $highest:
                raise ValueError("out of range")
            text = ""
            for value, letters in PAIRS:
                while number >= value:
                    text += letters
                    number -= value
            return text


        def from_roman(text):
            values = [VALUES[letter] for letter in text.upper()]
            total = 0
            for i, value in enumerate(values):
                smaller = i + 1 < len(values) and value < values[i + 1]
                total += -value if smaller else value
            return total
        """,
        bugs=(
            ("missing case", '(9, "IX"), (5, "V"), (4, "IV"), (1, "I"),', '(9, "IX"), (5, "V"), (1, "I"),'),
            ("wrong value", '(40, "XL")', '(40, "LX")'),
            ("boundary", "not 1 <= number <= $highest", "number > $highest"),
            ("missing loop", "while number >= value:", "if number >= value:"),
            ("wrong case", "in text.upper()]", "in text]"),
            ("wrong operator", "value < values[i + 1]", "value <= values[i + 1]"),
            ("off-by-one", "i + 1 < len(values) and", "i + 2 < len(values) and"),
        ),
        checks=(
            *(check("to_roman", number) for number in (4, 9, 14, 40, 49, 944, highest, highest + 1, 0, -4, 3, 38)),
            *(check("to_roman", number) for number in some),
            *(check("from_roman", text) for text in ("xiv", "XLIX", "mcmxc", "IV", "III", "CDXLIV", "VIII", "ix")),
        ),
        highest=highest,
    )


def buckets(rng: random.Random) -> Unit:
    """Values sorted into buckets."""
    closed_left = rng.random() < 0.5
    edges = sorted(rng.sample(range(5, 60), k=3))
    values = [rng.choice([*edges, *range(0, 65, 5)]) for _ in range(10)]
    return unit(
        "buckets",
        contract="""`bucket(value, edges)` says in which bucket a value lies: ascending edges divide the line into
        len(edges) + 1 buckets, numbered from 0, and a value that equals an edge lies $side of it. `histogram(values,
        edges)` counts the values of every bucket. `widest(edges)` is the number of the inner bucket with the
        greatest
        distance between its two edges, the first of equals; None if there is no inner bucket.""",
        source="""
        def bucket(value, edges):
            for number, edge in enumerate(edges):
                if value $test edge:
                    return number
            return len(edges)


        def histogram(values, edges):
            counts = [0] * (len(edges) + 1)
            for value in values:
                counts[bucket(value, edges)] += 1
            return counts


        def widest(edges):
            best = None
            for number in range(1, len(edges)):
                width = edges[number] - edges[number - 1]
                if best is None or width > edges[best] - edges[best - 1]:
                    best = number
            return best
        """,
        bugs=(
            ("boundary", "value $test edge", "value $wrong_test edge"),
            ("off-by-one", "return len(edges)\n", "return len(edges) - 1\n"),
            ("wrong operator", "counts[bucket(value, edges)] += 1", "counts[bucket(value, edges)] = 1"),
            ("off-by-one", "(len(edges) + 1)", "len(edges)"),
            ("wrong tie", "width > edges[best]", "width >= edges[best]"),
            ("missing return", "    return counts", "    return"),
            ("boundary", "range(1, len(edges)):", "range(1, len(edges) - 1):"),
        ),
        checks=(
            *(check("bucket", value, edges) for value in (edges[0], edges[1], edges[2], edges[0] - 1, edges[2] + 1)),
            check("histogram", values, edges),
            check("histogram", edges, edges),
            check("histogram", [90, 91, 1], edges),
            check("widest", [1, 5, 9]),
            check("widest", [1, 2, 9]),
            check("widest", [3, 6, 9, 12]),
            check("widest", [0, 4, 20]),
            check("widest", [4]),
            check("widest", edges),
        ),
        side="to the right" if closed_left else "to the left",
        test="<" if closed_left else "<=",
        wrong_test="<=" if closed_left else "<",
    )


NUMBER_UNITS: tuple[UnitMaker, ...] = (calendar, shares, numerals, buckets)
