"""Control characters in a record, a file or a name are shown by every command, never obeyed."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.trial import Attempt, read_trial, write_trial
from tests.cli.conftest import Tune
from tuning.cli.formatting import shown

TITLE, CLEAR, C1, BIDI = "\x1b]0;owned\x07", "\x1b[2J\x1b[1;1H", "\x9b31m", "\u202egpj\u2066"
HOSTILE = f"{TITLE}{CLEAR}{C1}{BIDI}\r\x08<script>alert(1)</script>"


@pytest.fixture
def hostile(tune: Tune) -> SweepPaths:
    """A sweep with such text in its name, parameters, reasons and errors."""
    paths = tune.sweep()
    for trial in map(paths.trial, paths.trial_ids()):
        record = read_trial(trial)
        attempt = Attempt(number=1, started=0, ended=1, error=HOSTILE, leak=HOSTILE)
        update = {
            "reason": HOSTILE,
            "attempts": (attempt,),
            "params": {**record.params, HOSTILE: HOSTILE},
        }
        write_trial(trial, record.model_copy(update=update))
    renamed = SweepPaths(paths.root.with_name(CLEAR.replace("/", "") + BIDI))
    paths.root.rename(renamed.root)
    return renamed


def obeyed(text: str) -> list[str]:
    """The characters that a terminal obeys, but newline and tab."""
    bidi = ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI", "FSI", "PDI")
    return [
        c
        for c in text
        if (unicodedata.category(c) == "Cc" and c not in "\n\t")
        or unicodedata.bidirectional(c) in bidi
    ]


@pytest.mark.parametrize(
    "args",
    [
        ["ls"],
        ["show", "."],
        ["show", ".", "t0000"],
        ["best", "."],
        ["best", ".", "--json"],
        ["report", "."],
        ["compare", ".", "."],
        ["add", ".", "x=0.5"],
        ["stop", "."],
    ],
    ids=" ".join,
)
def test_output_has_no_control_characters(tune: Tune, hostile: SweepPaths, args: list[str]) -> None:
    done = tune(*(str(hostile.root) if arg == "." else arg for arg in args))
    assert obeyed(done.out + done.err) == []


def test_colours_of_a_terminal_are_kept_and_those_of_a_record_are_not(
    tune: Tune, hostile: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    out = tune("show", str(hostile.root), "t0000").out
    assert "\x1b[1mt0000\x1b[0m" in out
    assert "\\x1b[2J\\x1b[1;1H\\x9b31m\\u202egpj\\u2066" in out
    assert not any(text in out for text in (TITLE, CLEAR, C1, BIDI))


def test_errors_have_no_control_characters(tune: Tune, hostile: SweepPaths) -> None:
    hostile.trial("t0000").record.write_text(f'"{HOSTILE}"')
    damaged = tune("show", str(hostile.root), code=3)
    assert obeyed(damaged.out + damaged.err) == []
    for args in (["show", f"no{HOSTILE}"], ["resume", f"x{HOSTILE}"]):
        assert obeyed(tune.refused(*args)) == []


def test_report_escapes_markup(tune: Tune, hostile: SweepPaths) -> None:
    page = tune.cwd / "page.html"
    tune("report", str(hostile.root), "--html", page)
    text = page.read_text()
    assert "&lt;script&gt;alert(1)" in text or "\\u003cscript\\u003ealert(1)" in text
    assert "<script>alert(1)" not in text


@pytest.mark.parametrize("text", ["plain\tüñí 模型 → ±", "two\nlines", "", "👩‍💻"])
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert shown(text) == text


def test_commands_print_through_one_place() -> None:
    root = Path(shown.__code__.co_filename).parents[1]
    assert [p.name for p in root.rglob("*.py") if "typer.echo(" in p.read_text()] == [
        "formatting.py"
    ]
