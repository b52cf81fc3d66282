"""Units over lists: pages, rankings, intervals, windows, grids, duplicates."""

from __future__ import annotations

import random

from agentenv_tasks.repair.unit import Unit, UnitMaker, check, unit

_NAMES = ("ada", "bo", "cy", "dee", "eli", "flo", "gus", "hal", "ida", "jon")


def paging(rng: random.Random) -> Unit:
    """Pages of a list."""
    first = rng.choice((0, 1))
    items = list(range(10, 10 + rng.randint(9, 14)))
    size = rng.choice((2, 3, 4))
    return unit(
        "paging",
        contract="""`page(items, number, size)` gives the items of one page; the first page has the number $first.
        A page beyond the end is empty. `page_count(total, size)` says how many pages `total` items fill. Both raise
        ValueError if `size` is below 1.""",
        source="""
        def page(items, number, size):
            _check(size)
            start = $start * size
            return items[start:start + size]


        def page_count(total, size):
            _check(size)
            return (total + size - 1) // size


        def _check(size):
            if size < 1:
                raise ValueError("size must be 1 or more")
        """,
        bugs=(
            ("off-by-one", "items[start:start + size]", "items[start:start + size - 1]"),
            ("off-by-one", "start = $start * size", "start = $wrong_start * size"),
            ("boundary", "(total + size - 1) // size", "total // size + 1"),
            ("boundary", "(total + size - 1) // size", "total // size"),
            ("boundary", "if size < 1:", "if size < 0:"),
        ),
        checks=(
            *(check("page", items, first + i, size) for i in range(3)),
            check("page", items, first + 40, size),
            check("page", items, first, 0),
            *(check("page_count", total, size) for total in (0, 1, size, size * 2, size * 2 + 1, size * 5 - 1)),
            check("page_count", 5, 0),
        ),
        first=first,
        start="number" if first == 0 else "(number - 1)",
        wrong_start="(number + 1)" if first == 0 else "number",
    )


def leaderboard(rng: random.Random) -> Unit:
    """Rankings with ties."""
    best_high, dense = rng.random() < 0.5, rng.random() < 0.5
    tables = [[[name, rng.randint(1, 4)] for name in rng.sample(_NAMES, k=7)] for _ in range(5)]
    return unit(
        "leaderboard",
        contract="""`ranking(scores)` takes [name, points] pairs and gives the names, best first; $best points
        are best,
        and names with equal points keep the order they came in. `places(scores)` maps each name to its place,
        from 1;
        names with equal points share a place, and the next place after them $next_place.""",
        source="""
        def ranking(scores):
            ordered = sorted(scores, key=lambda entry: $sign_sort)
            return [name for name, points in ordered]


        def places(scores):
            order = sorted($collection, reverse=$reverse)
            return {name: order.index(points) + 1 for name, points in scores}
        """,
        bugs=(
            ("sorting stability", "lambda entry: $sign_sort", "lambda entry: ($sign_sort, entry[0])"),
            (
                "sorting stability",
                "ordered = sorted(scores, key=lambda entry: $sign_sort)",
                "ordered = sorted(reversed(scores), key=lambda entry: $sign_sort)",
            ),
            ("wrong key", "lambda entry: $sign_sort", "lambda entry: entry[0]"),
            ("wrong operator", "lambda entry: $sign_sort", "lambda entry: $sign_wrong"),
            ("off-by-one", "order.index(points) + 1", "order.index(points)"),
            ("wrong collection", "order = sorted($collection,", "order = sorted($wrong_collection,"),
        ),
        checks=(
            *(check("ranking", table) for table in tables),
            *(check("places", table) for table in tables),
            check("ranking", []),
        ),
        best="high" if best_high else "low",
        next_place="follows without a gap" if dense else "leaves a gap for them",
        sign_sort="-entry[1]" if best_high else "entry[1]",
        sign_wrong="entry[1]" if best_high else "-entry[1]",
        reverse=best_high,
        collection="{points for name, points in scores}" if dense else "[points for name, points in scores]",
        wrong_collection="[points for name, points in scores]" if dense else "{points for name, points in scores}",
    )


def intervals(rng: random.Random) -> Unit:
    """Unions of intervals."""
    touching = rng.random() < 0.5

    def some() -> list[list[int]]:
        return [[start, start + rng.randint(1, 6)] for start in (rng.randint(0, 24) for _ in range(6))]

    return unit(
        "intervals",
        contract="""`merge(intervals)` takes [start, end] pairs in any order and gives the fewest pairs that
        cover the
        same points, ascending; two intervals of which one begins where the other ends $touch. The argument is not
        changed. `covered(intervals)` is the length that they cover together.""",
        source="""
        def merge(intervals):
            merged = []
            for start, end in sorted(intervals):
                if merged and start $test merged[-1][1]:
                    merged[-1][1] = max(merged[-1][1], end)
                else:
                    merged.append([start, end])
            return merged


        def covered(intervals):
            return sum(end - start for start, end in merge(intervals))
        """,
        bugs=(
            ("boundary", "start $test merged[-1][1]", "start $wrong_test merged[-1][1]"),
            ("lost maximum", "max(merged[-1][1], end)", "end"),
            ("missing sort", "in sorted(intervals):", "in intervals:"),
            ("missing merge", "in merge(intervals))", "in intervals)"),
            ("wrong operator", "sum(end - start for", "sum(end + start for"),
        ),
        checks=(
            check("merge", [[1, 3], [3, 5], [8, 9]]),
            check("merge", [[0, 9], [2, 4], [20, 21]]),
            check("merge", [[5, 7], [1, 5]]),
            check("merge", [[6, 8], [1, 9], [0, 2]]),
            *(check("merge", some()) for _ in range(3)),
            check("covered", [[0, 4], [2, 6], [10, 11]]),
            *(check("covered", some()) for _ in range(3)),
        ),
        touch="become one" if touching else "stay two",
        test="<=" if touching else "<",
        wrong_test="<" if touching else "<=",
    )


def windows(rng: random.Random) -> Unit:
    """Sums over windows, and peaks."""
    strict = rng.random() < 0.5
    series = [[rng.randint(0, 6) for _ in range(rng.randint(7, 10))] for _ in range(6)]
    width = rng.choice((2, 3, 4))
    return unit(
        "windows",
        contract="""`moving_sums(values, width)` gives the sum of every run of `width` neighbouring values,
        from left to
        right. `peaks(values)` gives the positions of inner values that are $than both neighbours; the first and the
        last value are never peaks.""",
        source="""
        def moving_sums(values, width):
            return [sum(values[i:i + width]) for i in range(len(values) - width + 1)]


        def peaks(values):
            found = []
            for i in range(1, len(values) - 1):
                if values[i] $test max(values[i - 1], values[i + 1]):
                    found.append(i)
            return found
        """,
        bugs=(
            ("off-by-one", "len(values) - width + 1", "len(values) - width"),
            ("off-by-one", "values[i:i + width]", "values[i:i + width - 1]"),
            ("boundary", "range(1, len(values) - 1)", "range(1, len(values) - 2)"),
            ("boundary", "values[i] $test max(", "values[i] $wrong_test max("),
            ("wrong function", "$test max(values[i - 1]", "$test min(values[i - 1]"),
            ("missing return", "    return found", "    return"),
        ),
        checks=(
            *(check("moving_sums", values, width) for values in series[:4]),
            check("moving_sums", [5, 6], 2),
            *(check("peaks", values) for values in series),
            check("peaks", [1, 2, 2, 1, 0]),
            check("peaks", [0, 1, 5, 0]),
            check("peaks", [4, 4, 4, 3, 9, 8]),
        ),
        than="greater than" if strict else "at least as great as",
        test=">" if strict else ">=",
        wrong_test=">=" if strict else ">",
    )


def grid(rng: random.Random) -> Unit:
    """Turning a grid, and sums of neighbours."""
    clockwise, corners = rng.random() < 0.5, rng.random() < 0.5

    def some(rows: int, columns: int) -> list[list[int]]:
        return [[rng.randint(1, 9) for _ in range(columns)] for _ in range(rows)]

    wide, tall = some(3, 5), some(4, 2)
    return unit(
        "grid",
        contract="""`turned(grid)` gives a grid (a list of rows) turned $way by a quarter. `around(grid, row,
        column)`
        is the sum of the cells that touch a cell by a side$corner; cells beyond the rim count nothing, and
        neither does
        the cell itself.""",
        source="""
        def turned(grid):
            return [list(line) for line in $turn]


        def around(grid, row, column):
            total = 0
            for r in range(max(row - 1, 0), min(row + 2, len(grid))):
                for c in range(max(column - 1, 0), min(column + 2, len(grid[0]))):
                    if $counts:
                        total += grid[r][c]
            return total
        """,
        bugs=(
            ("wrong direction", "for line in $turn]", "for line in $wrong_turn]"),
            ("off-by-one", "min(row + 2, len(grid))", "min(row + 1, len(grid))"),
            ("negative index", "range(max(row - 1, 0),", "range(row - 1,"),
            ("wrong dimension", "len(grid[0])", "len(grid)"),
            ("wrong condition", "if $counts:", "if $wrong_counts:"),
            ("wrong operator", "total += grid[r][c]", "total = grid[r][c]"),
        ),
        checks=(
            check("turned", wide),
            check("turned", tall),
            check("turned", some(2, 2)),
            check("around", wide, 0, 0),
            check("around", wide, 1, 4),
            check("around", wide, 2, 3),
            check("around", wide, 0, 2),
            check("around", tall, 1, 1),
            check("around", tall, 3, 0),
            check("around", tall, 0, 1),
        ),
        way="clockwise" if clockwise else "anticlockwise",
        corner=" or a corner" if corners else " (corners do not count)",
        turn="zip(*grid[::-1])" if clockwise else "list(zip(*grid))[::-1]",
        wrong_turn="list(zip(*grid))[::-1]" if clockwise else "zip(*grid[::-1])",
        counts="(r, c) != (row, column)" if corners else "abs(r - row) + abs(c - column) == 1",
        wrong_counts="r != row and c != column" if corners else "abs(r - row) + abs(c - column) <= 1",
    )


def distinct(rng: random.Random) -> Unit:
    """Removing duplicates, and grouping."""
    keep_last = rng.random() < 0.5
    pool = ("Tea", "tea", "Straße", "STRASSE", "Milk", "milk", "MILK", "salt", "Salt", "oil", "Öl", "öl")
    lists = [rng.sample(pool, k=9) for _ in range(5)]
    return unit(
        "distinct",
        contract="""`distinct(words)` gives the words without repetitions, where letter case does not count (by
        Unicode case folding); of equal words the $kept one stays, and the order is that of the words that stay.
        `grouped(words)` maps each first letter, case-folded, to its words in the order they came in.""",
        source="""
        def distinct(words):
            seen = set()
            kept = []
            for word in $walk:
                folded = word.casefold()
                if folded not in seen:
                    seen.add(folded)
                    kept.append(word)
            return $result


        def grouped(words):
            groups = {}
            for word in words:
                groups.setdefault(word[0].casefold(), []).append(word)
            return groups
        """,
        bugs=(
            ("unicode", "folded = word.casefold()", "folded = word.lower()"),
            ("wrong variable", "seen.add(folded)", "seen.add(word)"),
            ("wrong order", "return $result", "return sorted($result)"),
            ("wrong end", "for word in $walk:\n        folded", "for word in $wrong_walk:\n        folded"),
            ("wrong key", "word[0].casefold()", "word[-1].casefold()"),
            (
                "lost entries",
                "groups.setdefault(word[0].casefold(), []).append(word)",
                "groups[word[0].casefold()] = [word]",
            ),
        ),
        checks=(
            check("distinct", ["STRASSE", "ab", "straße", "AB"]),
            check("distinct", ["b", "a", "B", "c", "A"]),
            check("distinct", ["Maß", "MASS", "x", "mass"]),
            *(check("distinct", words) for words in lists),
            *(check("grouped", words) for words in lists[:3]),
            check("grouped", ["Apple", "ant", "bee"]),
        ),
        kept="last" if keep_last else "first",
        walk="reversed(words)" if keep_last else "words",
        wrong_walk="list(words)" if keep_last else "words[::-1]",
        result="kept[::-1]" if keep_last else "kept",
    )


LIST_UNITS: tuple[UnitMaker, ...] = (paging, leaderboard, intervals, windows, grid, distinct)
