"""Units over text: slugs, line wrapping, queries, quoted cells, run lengths, version numbers."""

from __future__ import annotations

import random

from agentenv_tasks.repair.unit import Unit, UnitMaker, chain, check, unit

_WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "loch")


def slug(rng: random.Random) -> Unit:
    """Titles as parts of addresses."""
    separator, limit = rng.choice("-_."), rng.choice((12, 16, 20))
    some = [" ".join(rng.sample(_WORDS, k=4)) for _ in range(4)]
    return unit(
        "slug",
        contract="""`slug(title)` makes a part of an address: letters lose their accents and their case, variants of
        characters such as `²` or `№` become the plain ones, runs of anything but a-z and 0-9 become one
        `$separator`, the result has at most
        $limit characters, and it neither begins nor ends with `$separator`.""",
        source="""
        import re
        import unicodedata

        LIMIT = $limit


        def slug(title):
            plain = unicodedata.normalize("NFKD", title)
            plain = "".join(char for char in plain if not unicodedata.combining(char))
            words = re.findall("[a-z0-9]+", plain.casefold())
            return "$separator".join(words)[:LIMIT].strip("$separator")
        """,
        bugs=(
            ("unicode", 'normalize("NFKD", title)', 'normalize("NFC", title)'),
            ("unicode", 'normalize("NFKD", title)', 'normalize("NFD", title)'),
            ("wrong case", "plain.casefold()", "plain"),
            ("boundary", "[:LIMIT]", "[:LIMIT - 1]"),
            ("missing step", '[:LIMIT].strip("$separator")', "[:LIMIT]"),
            ("wrong pattern", "[a-z0-9]+", "[a-z]+"),
        ),
        checks=(
            check("slug", "Crème brûlée"),
            check("slug", "Ærø ﬁne 10 m²"),
            check("slug", "\uff37\uff49\uff44\uff45 №7"),
            check("slug", "Łódź 1984"),
            check("slug", "Ten  (10) Steps!"),
            check("slug", "x" * (limit - 1) + " tail"),
            check("slug", "y" * (limit + 4)),
            check("slug", "Öl & ﬂour"),
            check("slug", "a" * (limit - 2) + " 7 more"),
            check("slug", "b" * (limit // 2 - 1) + " " + "c" * (limit // 2 - 1) + " d"),
            *(check("slug", title.title()) for title in some),
        ),
        separator=separator,
        limit=limit,
    )


def wrapping(rng: random.Random) -> Unit:
    """Text in lines of a width."""
    right = rng.random() < 0.5
    width = rng.choice((11, 13, 17))
    texts = [" ".join(rng.choice(_WORDS) for _ in range(9)) for _ in range(5)]
    return unit(
        "wrapping",
        contract="""`wrap(text, width)` breaks a text between words into as few lines as a greedy filling
        gives, each at
        most `width` long; a longer word stands alone. Runs of white space count as one space. $padding""",
        source="""
        def wrap(text, width):
            lines = []
            line = ""
            for word in text.split():
                if line and len(line) + 1 + len(word) > width:
                    lines.append(line)
                    line = word
                else:
                    line = line + " " + word if line else word
            if line:
                lines.append(line)
            return [$shown for line in lines]
        """,
        bugs=(
            ("boundary", "len(word) > width", "len(word) >= width"),
            ("off-by-one", "len(line) + 1 + len(word)", "len(line) + len(word)"),
            ("lost remainder", "            line = word\n        else", '            line = ""\n        else'),
            ("white space", "text.split()", 'text.split(" ")'),
            ("wrong padding", "[$shown for line in lines]", "[$wrong_shown for line in lines]"),
            (
                "wrong condition",
                "    if line:\n        lines.append(line)",
                "    if lines:\n        lines.append(line)",
            ),
        ),
        checks=(
            check("wrap", "abcde fghij klmno", 11),
            check("wrap", "aa  bb   cc dd", 5),
            check("wrap", "abcd ef", 6),
            check("wrap", "abc de fgh", 5),
            check("wrap", "ab cd efg hij", 6),
            check("wrap", "", 5),
            check("wrap", "ab  cd", 9),
            check("wrap", "solo", 6),
            check("wrap", "incomprehensibly so", 7),
            *(check("wrap", text, width) for text in texts),
            check("wrap", "one  two three", width),
        ),
        padding="Lines are filled with spaces on the left up to the width." if right else "Lines are not filled up.",
        shown="line.rjust(width)" if right else "line",
        wrong_shown="line.ljust(width)",
    )


def queries(rng: random.Random) -> Unit:
    """Query strings of addresses."""
    keys = rng.sample(_WORDS, k=4)
    ordered = rng.random() < 0.5
    return unit(
        "queries",
        contract="""`parse(query)` reads a query string such as `a=1&b=2&a=3`, with or without a leading `?`, into a
        mapping from each key to the list of its values; percent escapes and `+` are undone in both, a part
        without `=`
        has an empty value, an empty part counts nothing, and only the first `=` of a part divides it.
        `build(fields)`
        is the way back, with the keys $order.""",
        source="""
        from urllib.parse import quote_plus, unquote_plus


        def parse(query):
            fields = {}
            for part in query.lstrip("?").split("&"):
                if not part:
                    continue
                key, _, value = part.partition("=")
                fields.setdefault(unquote_plus(key), []).append(unquote_plus(value))
            return fields


        def build(fields):
            parts = []
            for key in $keys:
                for value in fields[key]:
                    parts.append(quote_plus(key) + "=" + quote_plus(value))
            return "&".join(parts)
        """,
        bugs=(
            ("wrong side", 'part.partition("=")', 'part.rpartition("=")'),
            (
                "lost entries",
                "fields.setdefault(unquote_plus(key), []).append(unquote_plus(value))",
                "fields[unquote_plus(key)] = [unquote_plus(value)]",
            ),
            ("missing step", ".append(unquote_plus(value))", ".append(value)"),
            ("wrong key", "fields.setdefault(unquote_plus(key), [])", "fields.setdefault(key, [])"),
            ("wrong order", "for key in $keys:", "for key in $wrong_keys:"),
            ("wrong condition", "if not part:\n            continue", "if not part:\n            break"),
            (
                "wrong escape",
                'parts.append(quote_plus(key) + "=" + quote_plus(value))',
                'parts.append(quote_plus(key) + "=" + value)',
            ),
        ),
        checks=(
            check("parse", "a=1&b=2&a=3"),
            check("parse", f"?{keys[0]}=x%20y&{keys[1]}=p+q"),
            check("parse", "e=a=b=c"),
            check("parse", f"{keys[2]}&&{keys[3]}=7"),
            check("parse", "first+name=Ada&last%2Dname=Lind"),
            check("parse", "&x=1&x=%26"),
            check("parse", "r=a+b&s=1=2&s=3"),
            check("parse", "k%C3%A9=v%3D1"),
            check("build", {keys[1]: ["1", "2"], keys[0]: ["x y"]}),
            check("build", {"z": ["&"], "a": ["ü="], keys[2]: ["1"]}),
            check("build", {"m": ["1"], "b": ["2 3"], "y": []}),
        ),
        order="in alphabetical order" if ordered else "in the order of the mapping",
        keys="sorted(fields)" if ordered else "fields",
        wrong_keys="fields" if ordered else "sorted(fields)",
    )


def cells(rng: random.Random) -> Unit:
    """Cells of a line, quoted or not."""
    separator = rng.choice(",;|")
    words = rng.sample(_WORDS, k=5)
    return unit(
        "cells",
        contract="""`parse_line(line)` splits a line at `$separator` into cells. A part in double quotes may hold
        `$separator`; inside it two double quotes stand for one. Spaces are kept. An empty line is one empty
        cell.""",
        source="""
        def parse_line(line):
            cells = []
            cell = ""
            quoted = False
            i = 0
            while i < len(line):
                char = line[i]
                if quoted and char == '"' and line[i + 1:i + 2] == '"':
                    cell += char
                    i += 1
                elif char == '"':
                    quoted = not quoted
                elif char == "$separator" and not quoted:
                    cells.append(cell)
                    cell = ""
                else:
                    cell += char
                i += 1
            cells.append(cell)
            return cells
        """,
        bugs=(
            (
                "missing step",
                "        cell += char\n            i += 1\n        elif",
                "        cell += char\n        elif",
            ),
            ("wrong condition", 'char == "$separator" and not quoted', 'char == "$separator"'),
            (
                "lost remainder",
                "        i += 1\n    cells.append(cell)\n",
                "        i += 1\n    if cell:\n        cells.append(cell)\n",
            ),
            ("wrong state", "quoted = not quoted", "quoted = True"),
            (
                "lost characters",
                '            cells.append(cell)\n            cell = ""',
                '            cells.append(cell.strip())\n            cell = ""',
            ),
            ("off-by-one", "line[i + 1:i + 2] ==", "line[i + 2:i + 3] =="),
        ),
        checks=(
            check("parse_line", "a$b$c".replace("$", separator)),
            check("parse_line", f'"a{separator}b"{separator}c'),
            check("parse_line", f'"say ""hi"""{separator}{words[0]}'),
            check("parse_line", f'x{separator}"p ""q"" r"{separator}y'),
            check("parse_line", ""),
            check("parse_line", f"{words[1]}{separator}"),
            check("parse_line", f" {words[2]} {separator} {words[3]}{separator}{words[0]}"),
            check("parse_line", separator * 3),
            check("parse_line", f"{separator}  {words[1]}{separator}{words[2]} {separator}"),
            check("parse_line", f'{words[4]}{separator}"{separator}{separator}"{separator} z '),
            check("parse_line", f'""{separator}""""{separator}k'),
        ),
        separator=separator,
    )


def runs(rng: random.Random) -> Unit:
    """Run-length encoding with a longest run."""
    limit = rng.choice((3, 4, 5, 9))
    texts = ["".join(rng.choice("ab") * rng.randint(1, limit + 2) for _ in range(5)) for _ in range(5)]
    return unit(
        "runs",
        contract="""`encode(text)` gives the runs of equal characters as [character, length] pairs; a run longer than
        $limit is written as several, each as long as possible. `decode(runs)` is the way back, and takes runs of any
        length. `longest(text)` is the length of the longest run before splitting, 0 for an empty text.""",
        source="""
        def encode(text):
            runs = []
            for char in text:
                if runs and runs[-1][0] == char and runs[-1][1] < $limit:
                    runs[-1][1] += 1
                else:
                    runs.append([char, 1])
            return runs


        def decode(runs):
            return "".join(char * length for char, length in runs)


        def longest(text):
            best = length = 0
            for i, char in enumerate(text):
                length = length + 1 if i and text[i - 1] == char else 1
                best = max(best, length)
            return best
        """,
        bugs=(
            ("boundary", "runs[-1][1] < $limit", "runs[-1][1] <= $limit"),
            ("off-by-one", "runs.append([char, 1])", "runs.append([char, 0])"),
            ("wrong index", "if runs and runs[-1][0] == char", "if runs and runs[0][0] == char"),
            ("off-by-one", "char * length for", "char * (length - 1) for"),
            ("wrong reset", "text[i - 1] == char else 1", "text[i - 1] == char else 0"),
            ("lost maximum", "best = max(best, length)", "best = length"),
        ),
        checks=(
            *(check("encode", text) for text in texts),
            check("encode", "x" * (limit + 1)),
            check("encode", ""),
            check("decode", [["a", 2], ["b", 1], ["a", limit + 3]]),
            check("decode", [["q", 1], ["r", 4]]),
            check("longest", ""),
            check("longest", "abba"),
            check("longest", "aaabccca"),
            check("longest", "zz"),
            *(check("longest", text) for text in texts[:2]),
        ),
        limit=limit,
    )


def versions(rng: random.Random) -> Unit:
    """Version numbers compared as numbers."""
    ascending = rng.random() < 0.5

    def some() -> list[str]:
        return [".".join(str(rng.choice((0, 1, 2, 9, 10, 11))) for _ in range(rng.randint(1, 3))) for _ in range(6)]

    return unit(
        "versions",
        contract="""Versions are numbers divided by dots, and are compared number by number; trailing zeros make no
        difference (1.0 equals 1). `compare(a, b)` gives -1, 0 or 1. `ordered(versions)` gives them $direction; equal
        ones keep their order. `newest(versions)` gives the highest, the first of equal ones, or None if there
        is none.""",
        source="""
        def key(version):
            numbers = [int(part) for part in version.split(".")]
            while numbers and numbers[-1] == 0:
                numbers.pop()
            return numbers


        def compare(a, b):
            return (key(a) > key(b)) - (key(a) < key(b))


        def ordered(versions):
            return sorted(versions, key=key, reverse=$reverse)


        def newest(versions):
            return max(versions, key=key, default=None)
        """,
        bugs=(
            ("wrong type", "[int(part) for part in", "[part for part in"),
            (
                "wrong end",
                "while numbers and numbers[-1] == 0:\n        numbers.pop()",
                "while numbers and numbers[0] == 0:\n        numbers.pop(0)",
            ),
            ("missing loop", "while numbers and", "if numbers and"),
            ("wrong operator", "(key(a) > key(b)) - (key(a) < key(b))", "(key(a) >= key(b)) - (key(a) < key(b))"),
            ("wrong key", "sorted(versions, key=key, reverse=$reverse)", "sorted(versions, reverse=$reverse)"),
            ("wrong function", "max(versions, key=key, default=None)", "min(versions, key=key, default=None)"),
            ("missing default", "max(versions, key=key, default=None)", "max(versions, key=key)"),
            (
                "sorting stability",
                "sorted(versions, key=key, reverse=$reverse)",
                "sorted(versions, key=key, reverse=$wrong_reverse)[::-1]",
            ),
        ),
        checks=(
            check("compare", "1.10", "1.9"),
            check("compare", "2.0", "2"),
            check("compare", "2.0.0", "2"),
            check("compare", "3.0.0.0", "3"),
            check("compare", "0.1", "1"),
            check("compare", "1.2", "1.2.1"),
            check("compare", "10", "9.9"),
            check("ordered", ["1.0", "1", "0.9", "1.0.0", "11", "2"]),
            check("ordered", ["2", "10", "2.0", "10.0"]),
            *(check("ordered", some()) for _ in range(4)),
            check("newest", []),
            chain(("newest", (["0.2", "0.10"],)), ("newest", ([],))),
            check("newest", ["1.0", "1.10", "1.9"]),
            check("newest", ["3", "3.0", "0.5"]),
            *(check("newest", some()) for _ in range(2)),
        ),
        direction="lowest first" if ascending else "highest first",
        reverse=not ascending,
        wrong_reverse=ascending,
    )


TEXT_UNITS: tuple[UnitMaker, ...] = (slug, wrapping, queries, cells, runs, versions)
