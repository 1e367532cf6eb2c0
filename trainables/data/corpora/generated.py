"""Questions with checkable answers, made on the spot, as Parquet; always the same ones.

The same files serve several trainings: `question` and `answer` for fine-tuning and for rewards,
`answer` and `rejected` as pairs. Splits go by a question's digest, so it is always in the same one.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

GENERATED_VERSION = 1
"""Raise it with any change of code that changes the rows."""
MAX_TRIES = 20
"""Random questions per row wanted: fewer different ones exist of a low difficulty."""
Row = tuple[str, str, str]
"""Question, right answer, wrong answer."""


@dataclass(frozen=True)
class Generator:
    """Makes rows by a random generator and a difficulty, whose default is in `difficulty`."""

    make: Callable[[random.Random, int], Row]
    difficulty: int


def write_rows(columns: Sequence[str], rows: Iterable[Sequence[str]], target: Path) -> None:
    """Write rows of texts as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([dict(zip(columns, r, strict=True)) for r in rows]), target)


def generate_rows(source: str, difficulty: int | None, limit: int, seed: int = 0) -> list[Row]:
    """At most `limit` rows with different questions."""
    kind = GENERATED[source]
    level, found = difficulty or kind.difficulty, dict[str, Row]()
    rng = random.Random(f"{source} {level}" + (f" {seed}" if seed else ""))
    for _ in range(MAX_TRIES * limit):
        row = kind.make(rng, level)
        found.setdefault(row[0], row)
        if len(found) == limit:
            break
    return list(found.values())


def _arithmetic(rng: random.Random, digits: int) -> Row:
    a, b = (rng.randrange(10**digits) for _ in range(2))
    wrong = a + b + rng.choice([-10, -1, 1, 10])
    return f"{a}+{b}=", str(a + b), str(wrong)


def _format(rng: random.Random, digits: int) -> Row:
    question, answer, _ = _arithmetic(rng, digits)
    return question, f"<answer>{answer}</answer>", answer


def _sorting(rng: random.Random, count: int) -> Row:
    numbers = [rng.randrange(100) for _ in range(count)]
    right, wrong = sorted(numbers), sorted(numbers, reverse=True)
    asked, answer, rejected = (" ".join(map(str, n)) for n in (numbers, right, wrong))
    return f"sort {asked}:", answer, rejected


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _countdown(rng: random.Random, count: int) -> Row:
    numbers = [rng.randrange(1, 13) for _ in range(count)]
    signs = [rng.choice(list(_OPERATORS)) for _ in numbers[1:]]
    value, text = numbers[0], str(numbers[0])
    for i, (sign, number) in enumerate(zip(signs, numbers[1:], strict=True)):
        value = _OPERATORS[sign](value, number)
        text = f"{text}{sign}{number}" if i == 0 else f"({text}){sign}{number}"
    wrong = f"{text}+1"
    shown = rng.sample(numbers, count)
    return f"reach {value} with {' '.join(map(str, shown))}:", text, wrong


GENERATED: dict[str, Generator] = {
    "arithmetic": Generator(_arithmetic, 2),
    "countdown": Generator(_countdown, 3),
    "sorting": Generator(_sorting, 4),
    "format": Generator(_format, 2),
}
"""Value of `data.source` → what makes its rows."""
