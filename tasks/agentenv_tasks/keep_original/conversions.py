"""Conversions of one small file into another: both files, and what one has to be told to make the second.

Each maker draws its data from the generator alone and returns the right result with it.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Form = Literal["json", "csv", "text"]
"""How a result is compared: as a JSON value, as rows, or byte for byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """One conversion."""

    original_path: str
    original: bytes
    output_path: str
    output: bytes
    """A right result; others may be right as well, by ``form``."""
    form: Form
    request: str
    """What is wanted, after "Convert PATH"."""
    notes: tuple[str, ...]
    """Rules one has to know; they stand in the documents and nowhere else."""


_PEOPLE = ("Ada Lind", "Bilal Aziz", "Chen Wu", "Dina Roth", "Emil Kask", "Farah Noor", "Goran Ilić", "Hana Suzuki")
_TOWNS = ("Århus", "Córdoba", "Düren", "Évora", "Gävle", "Málaga", "Orléans", "Tromsø", "Würzburg", "Zaragoza")
_GOODS = ("lamp", "bolt", "tile", "mug", "rope", "seed", "stamp", "brick", "candle", "bottle", "hook", "valve")


def csv_to_json(rng: random.Random) -> Conversion:
    """A table with short column names becomes a list of objects with long ones."""
    names = dict(zip(("id", "item", "qty", "note"), rng.choice(_LONG_NAMES), strict=True))
    notes = [rng.choice(("", "fragile", "gift, wrapped", 'say "hi"', "two parcels")) for _ in range(rng.randint(6, 11))]
    rows = [[str(1000 + i), rng.choice(_GOODS), str(rng.randint(1, 90)), note] for i, note in enumerate(notes)]
    objects: list[dict[str, object]] = [
        {names["id"]: int(i), names["item"]: item, names["qty"]: int(count), names["note"]: note or None}
        for i, item, count, note in rows
    ]
    return Conversion(
        original_path="data/orders.csv",
        original=_csv([list(names), *rows]),
        output_path="out/orders.json",
        output=_json(objects),
        form="json",
        request="to JSON: a list with one object per row, in the order of the rows",
        notes=(
            *(f"The column `{short}` becomes the key `{long}`." for short, long in names.items()),
            f"`{names['id']}` and `{names['qty']}` are whole numbers, everything else is text.",
            "An empty cell becomes null.",
        ),
    )


def ini_to_json(rng: random.Random) -> Conversion:
    """A settings file becomes an object of objects with typed values."""
    sections: dict[str, dict[str, object]] = {}
    for section in rng.sample(("server", "storage", "mail", "search", "export"), k=3):
        sections[section] = {
            "enabled": rng.random() < 0.5,
            "workers": rng.randint(1, 64),
            "label": rng.choice(_GOODS) + " " + rng.choice(_GOODS),
        }
    yes, no = rng.choice((("on", "off"), ("yes", "no"), ("enabled", "disabled")))
    as_numbers = rng.random() < 0.5
    objects = sections if as_numbers else {name: _digits_as_text(values) for name, values in sections.items()}
    lines = ["; settings of the pilot installation"]
    for section, values in sections.items():
        lines += ["", f"[{section}]"]
        lines += [f"{key} = {_ini_value(value, yes, no)}" for key, value in values.items()]
    return Conversion(
        original_path="config/pilot.ini",
        original=("\n".join(lines) + "\n").encode(),
        output_path="out/pilot.json",
        output=_json(objects),
        form="json",
        request="to JSON: one object with one object per section",
        notes=(
            f"`{yes}` becomes true and `{no}` becomes false.",
            "Values made of digits only become numbers, all others stay text."
            if as_numbers
            else "All other values stay text, those made of digits as well.",
            "Comments are left out.",
        ),
    )


def table_to_csv(rng: random.Random) -> Conversion:
    """A Markdown table becomes comma-separated rows under another header."""
    header = ["Person", "Town", "Visits"]
    chosen = rng.sample(_PEOPLE, k=rng.randint(5, 8))
    rows = [[person, rng.choice(_TOWNS), str(rng.randint(1, 400))] for person in chosen]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(3)]
    lines = [_table_row(header, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
    lines += [_table_row(row, widths) for row in rows]
    new_header = list(rng.choice((("name", "place", "visits"), ("who", "where", "count"), ("person", "city", "times"))))
    order = rng.choice(((0, 1, 2), (1, 0, 2), (2, 0, 1)))
    table = [[row[i] for i in order] for row in [new_header, *rows]]
    return Conversion(
        original_path="notes/visits.md",
        original=("# Visits\n\n" + "\n".join(lines) + "\n\nCounted by hand.\n").encode(),
        output_path="out/visits.csv",
        output=_csv(table),
        form="csv",
        request="(only its table) to CSV with a header line",
        notes=(
            *(
                f"The column `{old}` is called `{new}` in the CSV file."
                for old, new in zip(header, new_header, strict=True)
            ),
            f"The CSV columns stand in the order {', '.join(new_header[i] for i in order)}.",
            "No cell begins or ends with a space.",
        ),
    )


def units(rng: random.Random) -> Conversion:
    """Distances and times get smaller units, as whole numbers."""
    rows: list[list[str]] = []
    converted: list[list[str]] = []
    unit, column, per_minute = rng.choice((("minutes", "time_min", 1), ("seconds", "time_s", 60)))
    for town in rng.sample(_TOWNS, k=rng.randint(6, 9)):
        tenths, hours, minutes = rng.randint(11, 990), rng.randint(0, 9), rng.randint(0, 59)
        rows.append([town, f"{tenths // 10}.{tenths % 10}", f"{hours}:{minutes:02d}"])
        converted.append([town, str(tenths * 100), str((hours * 60 + minutes) * per_minute)])
    return Conversion(
        original_path="data/routes.csv",
        original=_csv([["town", "distance_km", "time_h"], *rows]),
        output_path="out/routes.csv",
        output=_csv([["town", "distance_m", column], *converted]),
        form="csv",
        request="to the units that the documents ask for, again as CSV",
        notes=(
            "Distances are whole metres, in a column `distance_m` in the place of `distance_km`.",
            f"Times are whole {unit}, in a column `{column}` in the place of `time_h`, which has hours and minutes.",
            "Rows and columns keep their order.",
        ),
    )


def encoding(rng: random.Random) -> Conversion:
    """A Latin-1 text becomes UTF-8, with nothing else changed."""
    lines = [
        f"{rng.choice(_PEOPLE[:7])}; {rng.choice(_TOWNS)}; {rng.randint(2, 99)} m²" for _ in range(rng.randint(8, 14))
    ]
    text = "\n".join(line.replace("ć", "c") for line in lines) + "\n"
    mark = rng.choice(("", "\ufeff"))
    return Conversion(
        original_path="letters/addresses.txt",
        original=text.encode("latin-1"),
        output_path="out/addresses.txt",
        output=(mark + text).encode(),
        form="text",
        request="to the character encoding that the documents ask for",
        notes=(
            "Old text files are in ISO 8859-1 (Latin-1).",
            f"New text files are in UTF-8, {'and begin with' if mark else 'without'} a byte order mark.",
            "Apart from its encoding not a character of a text may change.",
        ),
    )


def line_ends(rng: random.Random) -> Conversion:
    """A text with carriage returns, trailing blanks and tabs becomes a plain one."""
    old: list[str] = []
    new: list[str] = []
    width = rng.choice((2, 3, 4, 8))
    for _ in range(rng.randint(8, 14)):
        words = rng.sample(_GOODS, k=rng.randint(2, 5))
        indent = rng.randint(0, 2)
        old.append("\t" * indent + " ".join(words) + " " * rng.randint(0, 3))
        new.append(" " * width * indent + " ".join(words))
    return Conversion(
        original_path="letters/stock.txt",
        original=("\r\n".join(old) + "\r\n").encode(),
        output_path="out/stock.txt",
        output=("\n".join(new) + "\n").encode(),
        form="text",
        request="to the plain form that the documents ask for",
        notes=(
            "Lines end with a line feed alone, the last one too.",
            "No line ends with a space.",
            f"Each tab becomes {width} spaces.",
        ),
    )


def records_to_csv(rng: random.Random) -> Conversion:
    """JSON lines with keys in any order become CSV with given columns."""
    columns = ["item", "town", "count"]
    rng.shuffle(columns)
    rows: list[dict[str, object]] = []
    for _ in range(rng.randint(6, 11)):
        row: dict[str, object] = {"item": rng.choice(_GOODS), "town": rng.choice(_TOWNS), "count": rng.randint(1, 500)}
        if rng.random() < 0.3:
            del row["town"]
        rows.append(row)
    lines = [
        json.dumps({key: row[key] for key in rng.sample(sorted(row), k=len(row))}, ensure_ascii=False) for row in rows
    ]
    empty = rng.choice(("n/a", "-", "unknown"))
    return Conversion(
        original_path="data/counts.jsonl",
        original=("\n".join(lines) + "\n").encode(),
        output_path="out/counts.csv",
        output=_csv([columns, *([str(row.get(column, empty)) for column in columns] for row in rows)]),
        form="csv",
        request="to CSV with a header line, one row per line, in the order of the lines",
        notes=(
            f"The CSV columns stand in the order {', '.join(columns)}.",
            f"Where a key is missing the cell is `{empty}`.",
        ),
    )


def dates(rng: random.Random) -> Conversion:
    """Dates get another form, and rows without a date go."""
    rows: list[list[str]] = []
    converted: list[list[str]] = []
    gap = rng.choice(("?", "none", "open"))
    between = rng.choice(("-", "/", ""))
    for person in rng.sample(_PEOPLE, k=rng.randint(6, 8)):
        day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1970, 2024)
        if rng.random() < 0.25:
            rows.append([person, gap])
            continue
        rows.append([person, f"{day}.{month}.{year}"])
        converted.append([person, between.join((f"{year}", f"{month:02d}", f"{day:02d}"))])
    return Conversion(
        original_path="data/members.csv",
        original=_csv([["member", "joined"], *rows]),
        output_path="out/members.csv",
        output=_csv([["member", "joined"], *converted]),
        form="csv",
        request="to the date form that the documents ask for, again as CSV",
        notes=(
            f"Dates are day, month, year in old files and {between.join(('YYYY', 'MM', 'DD'))} in new ones.",
            f"A row whose date is `{gap}` is left out.",
            "The header line stays.",
        ),
    )


CONVERSIONS: tuple[Callable[[random.Random], Conversion], ...] = (
    csv_to_json,
    ini_to_json,
    table_to_csv,
    units,
    encoding,
    line_ends,
    records_to_csv,
    dates,
)

_LONG_NAMES = (
    ("number", "article", "quantity", "remark"),
    ("order_id", "product", "amount", "comment"),
    ("order", "goods", "pieces", "hint"),
)


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _ini_value(value: object, yes: str, no: str) -> str:
    if isinstance(value, bool):
        return yes if value else no
    return str(value)


def _digits_as_text(values: dict[str, object]) -> dict[str, object]:
    return {key: value if isinstance(value, bool) else str(value) for key, value in values.items()}


def _table_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"
