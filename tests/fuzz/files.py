"""Randomly mutated sweep files: each one loads, or is refused with a message."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import dump_sweep, load_sweep
from tests.search_spaces.examples import SHIPPED
from tuning.controller.preflight.checks import preflight

_NO_LIMIT = nullcontext()
SCALARS = [
    *["null", "~", "true", "no", "0", "-1", "1e400", ".nan", "-.inf", "1e-5", "0x1F"],
    *["99999999999999999999", "''", "'", "'", '"\\u0000"', "[]", "{}", "[[]]", "{a:", "{}}"],
    *["&a", "*a", "!!python/object:os.system", "!!int", "x", "<<:", "?", "-", ":", "'%'", "@"],
    *["`", "|", ">", "2026-01-01", "${HOME}", "${X", "{uniform:", "[0,", "1]}", "{choice:"],
    *["[]}", "{loguniform:", "[0,", "1]}", "{randint:", "[5,", "5]}", "{uniform:", "[1]}"],
    *["1_000"],
]


def mutated(rng: random.Random) -> bytes:
    """A shipped file after one to four random mutations."""
    data = rng.choice(SHIPPED).read_bytes()
    for _ in range(rng.randint(1, 4)):
        data = rng.choice(MUTATIONS)(data, rng)
    return data


def check(
    data: bytes,
    folder: Path,
    reading: AbstractContextManager[None] = _NO_LIMIT,
    using: AbstractContextManager[None] = _NO_LIMIT,
) -> bool:
    """Whether the file loads; any exception but a `UserError` escapes.

    Args:
        reading: entered while the file is read.
        using: entered while what was read is written, read again and planned.
    """
    file = folder / "fuzzed.yaml"
    file.write_bytes(data)
    try:
        with reading:
            loaded = load_sweep(file)
        with using:
            dump = folder / "dump.yaml"
            dump.write_text(dump_sweep(loaded.spec))
            assert load_sweep(dump).spec == loaded.spec, "the dump does not round-trip"
            preflight(loaded)
    except UserError as e:
        assert all(line and "\n" not in line for line in e.problems), e.problems
        return False
    return True


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _change_line(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    act = rng.randrange(4)
    if act == 0:
        del lines[a]
    elif act == 1:
        lines.insert(a, lines[b])
    elif act == 2:
        lines[a], lines[b] = lines[b], lines[a]
    else:
        lines[a] = b" " * rng.randrange(5) + lines[a].lstrip()
    return b"\n".join(lines)


def _change_value(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = [i for i, line in enumerate(lines) if b":" in line]
    if not at:
        return data
    i = rng.choice(at)
    key, colon, _ = lines[i].partition(b":")
    lines[i] = key + colon + b" " + rng.choice(SCALARS).encode()
    return b"\n".join(lines)


def _change_key(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    i = rng.randrange(len(lines))
    key, colon, value = lines[i].partition(b":")
    other = rng.choice([b"lr", b"space", b"a.b", b"", b"1", b"null", b"\xc3\xa9", key[::-1]])
    lines[i] = other + colon + value
    return b"\n".join(lines)


MUTATIONS = (
    truncate,
    flip_bit,
    _change_line,
    _change_line,
    _change_value,
    _change_value,
    _change_value,
    _change_key,
)
