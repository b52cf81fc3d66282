"""Units over state: books of accounts, caches, rate limits, nested settings."""

from __future__ import annotations

import random

from agentenv_tasks.repair.unit import Unit, UnitMaker, chain, check, unit

_ACCOUNTS = ("cash", "rent", "tax", "food", "fuel")


def ledger(rng: random.Random) -> Unit:
    """Balances, and a book that must not be shared by accident."""
    inclusive = rng.random() < 0.5

    def some() -> list[list[object]]:
        return [[rng.choice(_ACCOUNTS), rng.randint(-40, 60)] for _ in range(5)]

    book = {account: rng.randint(-30, 30) for account in _ACCOUNTS[:3]}
    limit = -min(book.values())
    return unit(
        "ledger",
        contract="""`post(entries, book)` adds [account, amount] pairs to the balances in `book`, a mapping,
        and gives the
        new balances; without a book it begins with an empty one. Neither argument is changed, and no call changes
        what another returns. `overdrawn(book, limit)` gives, in alphabetical order, the accounts whose balance
        is $below
        `-limit`.""",
        source="""
        def post(entries, book=None):
            balances = dict(book or {})
            for account, amount in entries:
                balances[account] = balances.get(account, 0) + amount
            return balances


        def overdrawn(book, limit):
            found = []
            for account, balance in book.items():
                if balance $test -limit:
                    found.append(account)
            return sorted(found)
        """,
        bugs=(
            (
                "mutable default",
                "def post(entries, book=None):\n    balances = dict(book or {})\n",
                "def post(entries, book={}):\n    balances = book\n",
            ),
            ("changed argument", "balances = dict(book or {})", "balances = {} if book is None else book"),
            ("lost entries", "balances.get(account, 0) + amount", "amount"),
            ("wrong operator", "balances.get(account, 0) + amount", "balances.get(account, 0) - amount"),
            ("wrong default", "balances.get(account, 0) + amount", "balances.get(account, amount) + amount"),
            ("boundary", "balance $test -limit", "balance $wrong_test -limit"),
            ("wrong sign", "balance $test -limit", "balance $test limit"),
            ("missing sort", "return sorted(found)", "return found"),
        ),
        checks=(
            chain(("post", ([["cash", 5]],)), ("post", ([["rent", 7]],))),
            chain(("post", ([["tax", 1]],)), ("post", ([["tax", 2]],))),
            *(check("post", some(), dict(book)) for _ in range(4)),
            check("post", [["cash", 3], ["cash", 4]]),
            check("overdrawn", book, limit),
            check("overdrawn", {"rent": -9, "cash": -8, "tax": -10}, 8),
            check("overdrawn", {"b": -5, "a": -5, "c": 5}, 5),
            check("overdrawn", {"y": -9, "z": 3, "x": -20}, 2),
            check("overdrawn", {"tax": -30, "cash": -40}, 1),
            check("overdrawn", {"m": 3, "o": -12, "n": 1}, 6),
        ),
        below="at or below" if inclusive else "below",
        test="<=" if inclusive else "<",
        wrong_test="<" if inclusive else "<=",
    )


def cache(rng: random.Random) -> Unit:
    """A cache of limited size, replayed."""
    recent = rng.random() < 0.5
    traces = [[rng.choice("abcde") for _ in range(rng.randint(9, 13))] for _ in range(7)]
    size = rng.choice((2, 3))
    return unit(
        "cache",
        contract="""`replay(keys, size)` asks a cache that holds `size` keys for each key in turn and gives, as
        a list of
        booleans, whether it was there; a key that was not there is put in, and when there is no room the key that
        $policy goes. `hit_rate(hits)` is the share of hits in whole percent, rounded down, 0 for none asked.""",
        source="""
        def replay(keys, size):
            held = []
            hits = []
            for key in keys:
                hit = key in held
                hits.append(hit)
                if $refresh:
                    held.remove(key)
                if $insert:
                    held.append(key)
                if len(held) > size:
                    held.pop(0)
            return hits


        def hit_rate(hits):
            if not hits:
                return 0
            return 100 * sum(hits) // len(hits)
        """,
        bugs=(
            ("boundary", "if len(held) > size:", "if len(held) >= size:"),
            ("wrong end", "held.pop(0)", "held.pop()"),
            (
                "wrong policy",
                "if $refresh:\n            held.remove(key)\n        if $insert:",
                "if $wrong_refresh:\n            held.remove(key)\n        if $wrong_insert:",
            ),
            ("wrong order", "hits.append(hit)", "hits.insert(0, hit)"),
            ("wrong operator", "100 * sum(hits) // len(hits)", "sum(hits) // len(hits) * 100"),
            ("missing case", "    if not hits:\n        return 0\n", "    if hits is None:\n        return 0\n"),
        ),
        checks=(
            check("replay", list("abacab"), 2),
            check("replay", list("abcabdab"), 3),
            check("replay", list("aab"), 1),
            *(check("replay", trace, size) for trace in traces),
            check("hit_rate", [True, False, True]),
            check("hit_rate", []),
            check("hit_rate", [True, True, False, False]),
            chain(("hit_rate", ([],)), ("hit_rate", ([True],))),
        ),
        policy="was asked for longest ago" if recent else "was put in first",
        refresh="hit" if recent else "False",
        insert="True" if recent else "not hit",
        wrong_refresh="False" if recent else "hit",
        wrong_insert="not hit" if recent else "True",
    )


def rate_limit(rng: random.Random) -> Unit:
    """How many requests pass within a time."""
    refused_count = rng.random() < 0.5

    def times() -> list[int]:
        moment, found = 0, list[int]()
        for _ in range(9):
            moment += rng.choice((0, 1, 1, 2, 3))
            found.append(moment)
        return found

    limit, window = rng.choice((2, 3)), rng.choice((4, 5, 6))
    return unit(
        "rate_limit",
        contract="""`allowed(times, limit, window)` takes ascending moments of requests and gives, as a list of
        booleans,
        which of them pass: a request passes if fewer than `limit` earlier requests$which lie less than
        `window` before
        it. `waits(times)` gives the time between each request and the next.""",
        source="""
        def allowed(times, limit, window):
            counted = []
            answers = []
            for moment in times:
                counted = [earlier for earlier in counted if moment - earlier < window]
                passes = len(counted) < limit
                answers.append(passes)
                if $counts:
                    counted.append(moment)
            return answers


        def waits(times):
            return [later - earlier for earlier, later in zip(times, times[1:])]
        """,
        bugs=(
            ("boundary", "moment - earlier < window", "moment - earlier <= window"),
            ("boundary", "len(counted) < limit", "len(counted) <= limit"),
            ("wrong condition", "if $counts:", "if $wrong_counts:"),
            ("wrong variable", "moment - earlier < window", "moment - earlier < limit"),
            ("wrong operator", "[later - earlier for", "[earlier - later for"),
            ("off-by-one", "zip(times, times[1:])", "zip(times, times[2:])"),
        ),
        checks=(
            check("allowed", [0, 0, 1, 2, 3, 4, 6, 7, 7], limit, window),
            check("allowed", [0, 0, 0, 0, window, window], limit, window),
            check("allowed", [0] * limit + [1] * limit + [window], limit, window),
            check("allowed", [2] * limit + [3] * limit + [2 + window] * 2, limit, window),
            *(check("allowed", times(), limit, window) for _ in range(6)),
            check("waits", [1, 4, 9]),
            check("waits", [2, 2, 5, 11]),
            check("waits", times()),
            check("waits", []),
        ),
        which=", refused ones too," if refused_count else " that passed",
        counts="True" if refused_count else "passes",
        wrong_counts="passes" if refused_count else "True",
    )


def settings(rng: random.Random) -> Unit:
    """Nested settings and their dotted names."""
    separator = rng.choice("./:")
    keep_empty = rng.random() < 0.5
    names = rng.sample(("db", "log", "web", "mail", "jobs", "ui"), k=4)
    tree = {
        names[0]: {"host": "a", "port": rng.randint(1, 99), "pool": {"low": 1, "high": rng.randint(2, 9)}},
        names[1]: rng.randint(0, 5),
        names[2]: {"x": {}, "y": None},
    }
    return unit(
        "settings",
        contract="""`flatten(tree)` turns a mapping of mappings into one flat mapping whose keys are the names
        on the way,
        joined by `$separator`; an empty inner mapping $empty. `nested(flat)` is the way back. `merged(base,
        over)` gives
        `base` with the values of `over` put over it, inner mappings merged likewise; neither argument is
        changed.""",
        source="""
        def flatten(tree, prefix=""):
            flat = {}
            for key, value in tree.items():
                name = prefix + "$separator" + key if prefix else key
                if $inner:
                    flat.update(flatten(value, name))
                else:
                    flat[name] = value
            return flat


        def nested(flat):
            tree = {}
            for name, value in flat.items():
                *way, last = name.split("$separator")
                branch = tree
                for key in way:
                    branch = branch.setdefault(key, {})
                branch[last] = value
            return tree


        def merged(base, over):
            result = dict(base)
            for key, value in over.items():
                old = result.get(key)
                both = isinstance(old, dict) and isinstance(value, dict)
                result[key] = merged(old, value) if both else value
            return result
        """,
        bugs=(
            ("wrong variable", "flatten(value, name)", "flatten(value, key)"),
            ("lost entries", "flat.update(flatten(value, name))", "flat = flatten(value, name)"),
            ("missing case", "if $inner:", "if $wrong_inner:"),
            ("wrong default", "branch = branch.setdefault(key, {})", "branch[key] = branch = {}"),
            ("changed argument", "result = dict(base)", "result = base"),
            ("wrong condition", "isinstance(old, dict) and isinstance(value, dict)", "isinstance(old, dict)"),
            ("wrong order", "merged(old, value) if both", "merged(value, old) if both"),
        ),
        checks=(
            check("flatten", tree),
            check("flatten", {"a": {"b": {"c": 1}, "d": 2}, "e": 3}),
            check("flatten", {"p": {}, "q": {"r": {}}, "s": 1}),
            check("flatten", {"k": {"l": {"m": {"n": 4}}}}),
            check("flatten", {"a": 1, "b": {"c": 2}}),
            check("flatten", {"n": 0, "m": {"k": {"j": 1}}, "z": 9}),
            *(
                check("nested", {separator.join(way): i for i, way in enumerate(ways)})
                for ways in (
                    (("a", "b"), ("a", "c"), ("d",)),
                    (("x", "y", "z"), ("x", "y", "w"), ("x", "v")),
                    ((names[0], "u"), (names[1],), (names[0], "t", "s"), (names[0], "t", "r")),
                )
            ),
            check("merged", {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"c": 9}, "e": 4}),
            check("merged", {"a": {"b": 1}}, {"a": 5}),
            check("merged", {"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2, "d": 3}}}),
            check("merged", tree, {names[0]: {"port": 100}, names[3]: {"new": True}}),
            check("merged", {"m": {"n": 1}, "o": 2}, {"m": "text", "o": {"p": 1}}),
        ),
        separator=separator,
        empty="becomes a key of its own whose value is the empty mapping" if keep_empty else "leaves nothing behind",
        inner="isinstance(value, dict) and value" if keep_empty else "isinstance(value, dict)",
        wrong_inner="isinstance(value, dict)" if keep_empty else "isinstance(value, dict) and value",
    )


STATE_UNITS: tuple[UnitMaker, ...] = (ledger, cache, rate_limit, settings)
