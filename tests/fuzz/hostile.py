"""Hostile sweep files: each loads or is refused within a limit of processor time."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz import files
from tests.search_spaces.examples import SHIPPED

LOAD_SECONDS, USE_SECONDS = 3.0, 8.0
"""Limits of processor time: of reading the file, and of writing, reading and planning it.

On an idle machine the largest files that are accepted take half as long.
"""
NUMBERS = [
    *["1e308", "-1e308", "1e-320", "1e160", "9007199254740993", "-9223372036854775809", "1e400"],
    *["18446744073709551616", "0x" + "f" * 2000, "9" * 400, "9" * 5000, "-0.0", "1.0000000000001"],
]
FORMULAS = [
    *["round(seed, -100000000)", "9 ** 9 ** 9 ** 9", "9 ** 1000 * 9 ** 1000", "2 ** -1074 / 3"],
    *["(-8) ** 0.3", "1 / 0", "max(1, 2) // 0", "round(2.5, 10 ** 18)", "'a' in 'b'", "1e308 * 10"],
    *["1" + " + 1" * 100, "(" * 90 + "1" + ")" * 90, "-" * 90 + "1", "not " * 90 + "1", "x" * 600],
    *["abs(" * 30 + "-1" + ")" * 30, "1 < 2 < 3 < 4", "param('a') < 2", "[1, [2]] == [1]"],
    *[
        "ceil(1e400)",
        "log(0)",
        "log(8, 1)",
        "1 if 2 else 3",
        "'\\ud800' == 1",
        "0 ** -1",
        "1e400 - 1e400",
    ],
]
PATTERNS = [
    *[
        "(a+)+$",
        "(a{1000}){1000}",
        "(" * 200 + ")" * 200,
        "(?i)[\\x00-\\U0010ffff]" * 20,
        "a{,99999}",
    ],
    *[
        "[",
        "(?P<n>a)(?P=n)*",
        "a" * 501,
        "(?:(?:(?:.+)+)+)+$",
        "\\p{L}+",
        "(?<=a{1,9})b",
        "[[:alpha:]]",
    ],
]
TEXTS = [
    "\\x1b[31m",
    "\\u202e",
    "\\0",
    "\\ud800",
    "\\uffff",
    "a\\nb",
    "\\u2028",
    "x" * 30_000,
    "ﬃ",
    "=",
]
KINDS = [
    "uniform",
    "loguniform",
    "quniform",
    "randint",
    "lograndint",
    "qrandint",
    "randn",
    "qrandn",
]
_MOSTLY_FEW = [20] * 8 + [950, 3000]
"""Numbers of parameters: files at a limit take seconds, and thousands of them hours."""
Mutation = Callable[[str, random.Random], str]


def hostile(rng: random.Random) -> bytes:
    """A shipped file after one to three hostile mutations, and sometimes ordinary ones."""
    text = rng.choice(SHIPPED).read_text()
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        text = rng.choice(MUTATIONS)(text, rng)
    data = text.encode(errors="surrogatepass")
    return rng.choice(files.MUTATIONS)(data, rng) if rng.random() < 0.2 else data


def check(data: bytes, folder: Path) -> bool:
    """Whether the file loads; a hang is a `TimeoutError`."""
    return files.check(data, folder, processor_time(LOAD_SECONDS), processor_time(USE_SECONDS))


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in this thread, the main one, after so much processor time."""

    def end(*_: object) -> None:
        raise TimeoutError(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _section(name: str, *lines: str) -> str:
    return "\n".join([f"{name}:", *(f"  {line}" for line in lines), ""])


def _without(text: str, section: str) -> str:
    """The file without a top-level section."""
    kept, inside = [], False
    for line in text.split("\n"):
        if line[:1].strip():
            inside = line.startswith(f"{section}:")
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def _with(text: str, section: str, *lines: str) -> str:
    return _without(text, section).rstrip("\n") + "\n" + _section(section, *lines)


def _in_space(text: str, *lines: str) -> str:
    return text.replace("\nspace:\n", "\nspace:\n" + "".join(f"  {line}\n" for line in lines), 1)


def _value(rng: random.Random) -> str:
    """A scalar or a collection of a wrong type or size."""
    many = rng.choice([10, 300, 5000])
    deep = rng.choice([5, 60, 3000])
    return rng.choice(
        [
            rng.choice(NUMBERS),
            f'"{rng.choice(TEXTS)}"',
            f"'= {rng.choice(FORMULAS[:8])}'",
            "[" + ", ".join(map(str, range(many))) + "]",
            "{" + ", ".join(f"k{i}: {i}" for i in range(many)) + "}",
            "[" * deep + "]" * deep,
            "{a: " * deep + "1" + "}" * deep,
            rng.choice(
                ["true", "null", "2026-01-01", "!!binary aGk=", "!!set {a}", "0o17", "1:30"]
            ),
        ]
    )


def _any_value(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    at = [i for i, line in enumerate(lines) if ":" in line and not line.startswith("#")]
    i = rng.choice(at)
    lines[i] = f"{lines[i].partition(':')[0]}: {_value(rng)}"
    return "\n".join(lines)


def _domain(text: str, rng: random.Random) -> str:
    given = ", ".join(rng.choice([*NUMBERS, "0", "1", "2"]) for _ in range(rng.randint(1, 3)))
    return _in_space(text, f"hostile: {{{rng.choice(KINDS)}: [{given}]}}")


def _categories(text: str, rng: random.Random) -> str:
    values = ", ".join(_value(rng) for _ in range(rng.randint(1, 4)))
    return _in_space(
        text, f"hostile: {{{rng.choice(['choice', 'ordinal', 'grid_search'])}: [{values}]}}"
    )


def _grids(text: str, rng: random.Random) -> str:
    values = list(range(rng.choice([3, 30, 900])))
    return _in_space(text, *(f"g{i}: {{grid_search: {values}}}" for i in range(rng.randint(1, 12))))


def _parameters(text: str, rng: random.Random) -> str:
    return _in_space(text, *(f"p{i}: {{uniform: [0, 1]}}" for i in range(rng.choice(_MOSTLY_FEW))))


def _computed(text: str, rng: random.Random) -> str:
    chain = (f"c{i}: '= c{i - 1} * c{i - 1}'" for i in range(1, rng.randint(2, 60)))
    return _in_space(text, f"c0: '= {rng.choice(FORMULAS)}'".replace("= '", "= "), *chain)


def _constraints(text: str, rng: random.Random) -> str:
    count = rng.choice([1, 3, 40, 4000])
    each = (f"{rng.choice(FORMULAS)} < {i}".replace('"', "") for i in range(count))
    return _with(
        text, rng.choice(["constraints", "outcome_constraints"]), *(f'- "{e}"' for e in each)
    )


def _points(text: str, rng: random.Random) -> str:
    point = rng.choice(["{learning_rate: 1.0e-3}", "{x: 1}", "{}", "[]", f"{{a: {_value(rng)}}}"])
    return _with(text, "points", *([f"- {point}"] * rng.choice([1, 1, 1, 20, 500, 6000])))


def _patterns(text: str, rng: random.Random) -> str:
    each = (f"'{rng.choice(PATTERNS)}{i}': retry" for i in range(rng.choice([1, 3, 40])))
    return _with(text, "failure", "on_log:", *(f"  {e}" for e in each))


def _scheduler(text: str, rng: random.Random) -> str:
    name = rng.choice(["asha", "asha_promote", "hyperband", "median", "pbt", "pb2", "none", "auto"])
    factor, most = rng.choice(["1.0000001", "3", "1e300"]), rng.choice(["9", "1e9", "10000000000"])
    return _with(
        text, "scheduler", f"name: {name}", f"max_t: {most}", f"reduction_factor: {factor}"
    )


def _aliases(text: str, rng: random.Random) -> str:
    depth, wide = rng.randint(2, 12), rng.choice([3, 10])
    lines = [f"a0: &a0 {rng.choice(['1', '[1, 1, 1]', 'x' * 2000])}"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * wide)}]" for i in range(1, depth)]
    return _with(text, "fixed", *lines)


def _long(text: str, rng: random.Random) -> str:
    size = rng.choice([20_000, 200_000, 5_000_000])
    what = rng.choice(["# " + "c" * 100 + "\n", "description: " + "d" * 100 + " "])
    return text + (what * (size // len(what)) if what[0] == "#" else what[:13] + "d" * size) + "\n"


def _repeated(text: str, rng: random.Random) -> str:
    key = rng.choice(["space", "seed", "name", "unknown", '"\\x1b[2J"', "é" * 300])
    return text + f"{key}: {_value(rng)}\n" * rng.choice([1, 2, 2000])


MUTATIONS: tuple[Mutation, ...] = (
    *(_any_value, _any_value, _any_value, _domain, _domain, _categories, _grids, _parameters),
    *(_computed, _constraints, _constraints, _points, _patterns, _scheduler, _aliases, _long),
    _repeated,
)
