"""Records that are lost, changed or hostile are named by every command that ranks or reports."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from results import load
from results.analysis.confirmation import Confirmation, write
from results.paths import SweepPaths
from results.records.integrity import UNCHECKED
from results.records.record_log import remove_logged
from results.sweep_folder.repair import repair_spec
from search_spaces.errors import DamagedRecordsError
from tests.cli.conftest import ROOT, Tune
from tests.results.written import remeasured
from tuning.controller.sweep_dir.amend import amend_sweep

COMMANDS = (
    ("show", "mine"),
    ("best", "mine"),
    ("report", "mine"),
    ("average", "mine"),
    ("export", "mine"),
    ("compare", "mine", "mine"),
    ("evaluate", "mine", "--tasks", "./t.yaml"),
    ("generate", "mine", "--prompt", "a"),
    ("predict", "mine", "--input", "x.npy"),
    ("reproduce", "mine", "t0000"),
    ("resume", "mine"),
    ("resume", "mine", "--trials", "+1"),
    ("ls",),
)


def delete_reports(paths: SweepPaths, trial: str) -> str:
    paths.trial(trial).reports.unlink()
    return f"incomplete: {trial}/reports.jsonl has no report, its record says 9"


def truncate_reports(paths: SweepPaths, trial: str) -> str:
    lines = paths.trial(trial).reports.read_bytes().splitlines(keepends=True)
    paths.trial(trial).reports.write_bytes(b"".join(lines[:5]))
    return f"incomplete: {trial}/reports.jsonl ends at step 5, its record says 9"


def change_last_report(paths: SweepPaths, trial: str) -> str:
    data = paths.trial(trial).reports.read_bytes()
    at = data.rindex(b'"loss":') + 9
    paths.trial(trial).reports.write_bytes(data[:at] + b"7" + data[at + 1 :])
    return f"incomplete: {trial}/reports.jsonl ends at step 8, its record says 9"


def swap_reports(paths: SweepPaths, trial: str) -> str:
    other = paths.trial("t0001" if trial == "t0000" else "t0000").reports
    mine, theirs = paths.trial(trial).reports.read_bytes(), other.read_bytes()
    paths.trial(trial).reports.write_bytes(theirs)
    other.write_bytes(mine)
    return f"incomplete: {trial}/reports.jsonl has no report, its record says 9"


def delete_trial(paths: SweepPaths, trial: str) -> str:
    shutil.rmtree(paths.trial(trial).root)
    return f"missing: {trial}/trial.json, which records.jsonl lists"


DAMAGES = (delete_reports, truncate_reports, change_last_report, swap_reports, delete_trial)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_every_command_names_the_winner_that_is_lost(
    tune: Tune, damage: Callable[[SweepPaths, str], str]
) -> None:
    paths = tune.sweep("mine")
    winner = tune.best("mine")["trial"]
    words = f"mine: {damage(paths, winner)}\n"
    for command in COMMANDS:
        assert words in tune(*command, code=3).err, command
    accepted = tune("best", "mine", "--json", "--accept-damage")
    assert words in accepted.err
    assert json.loads(accepted.out)["trial"] in paths.trial_ids()
    with pytest.raises(DamagedRecordsError, match="mine: "):
        load(paths.root)
    with pytest.warns(UserWarning, match=winner):
        assert len(load(paths.root, accept_damage=True).trials) == len(paths.trial_ids())


def test_unreadable_record_is_left_out_when_damage_is_accepted(tune: Tune) -> None:
    paths = tune.sweep("mine")
    winner = tune.best("mine")["trial"]
    paths.trial(winner).record.write_bytes(b"{")
    assert f"mine: changed: {winner}/trial.json is not what records.jsonl lists last" in (
        tune("best", "mine", code=3).err
    )
    assert json.loads(tune("best", "mine", "--json", "--accept-damage").out)["trial"] != winner
    assert len(tune("ls", code=3).lines) == 2
    assert f"repaired: {paths.trial(winner).record}: " in tune("resume", "mine").out
    assert tune.best("mine")["trial"] == winner


def test_lost_confirmation_is_named(tune: Tune) -> None:
    paths = tune.sweep("mine")
    trials = (remeasured("t0000", loss=(0.1, 0.4, 0.5)),)
    write(paths, Confirmation(modes={"loss": "min"}, seeds=(7,), trials=trials))
    paths.confirmation.write_text("{")
    words = "mine: changed: results/confirmation.json is not what records.jsonl lists last"
    assert words in tune("best", "mine", code=3).err
    paths.confirmation.unlink()
    assert "mine: missing: results/confirmation.json" in tune("best", "mine", code=3).err
    paths.confirmation.write_text("{")
    remove_logged(paths, paths.confirmation)
    assert not tune.best("mine")["confirmed"]


def test_older_sweep_file_that_is_put_back_is_named(tune: Tune) -> None:
    tune.write("loop.py", "def train(config): report(config)\n")
    paths = tune.sweep("mine", trainable="loop.py:train")
    older = paths.spec.read_bytes()
    assert amend_sweep(paths, "8", None, ())
    assert repair_spec(paths) == []
    newer = paths.spec.read_bytes()
    paths.spec.write_bytes(older)
    words = "mine: changed: sweep.yaml is not what records.jsonl lists last"
    for command in (("best", "mine"), ("ls",), ("resume", "mine"), ("best", "mine")):
        assert words in tune(*command, code=3).err, command
    assert paths.spec_copy.read_bytes() == newer
    paths.spec.write_bytes(newer.split(b"\n", 1)[1] + b"# edited\n")
    assert tune("best", "mine").err == ""
    paths.spec.write_bytes(older)
    assert words in tune("resume", "mine", "--accept-damage").out
    assert tune("best", "mine").err == ""


def test_sweep_of_an_older_version_is_read_and_said_to_be_unchecked(tune: Tune) -> None:
    folder = tune.cwd / "sweeps" / "digits-v0-1"
    shutil.copytree(ROOT / "tests" / "data" / "sweep_0_1_0", folder)
    assert tune("best", "digits-v0-1").err == f"digits-v0-1: {UNCHECKED}\n"
    assert tune("ls").err == ""
    (folder / "trials" / "t0000" / "reports.jsonl").unlink()
    assert "t0000/reports.jsonl has no report" in tune("best", "digits-v0-1", code=3).err


NESTED = "[" * 100_000


def fifo(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def loop(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to(file.name)


def device(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to("/dev/zero")


def brackets(file: Path) -> None:
    file.write_text(f'{{"a": {NESTED}\n')


def deep(file: Path) -> None:
    file.write_text(f'{{"a": {NESTED}{"]" * len(NESTED)}}}\n')


FILES = (
    "sweep.yaml",
    "history/sweep.yaml",
    "state.json",
    "owner.lock",
    "study.journal",
    "records.jsonl",
    "results/confirmation.json",
    "trials/t0000/trial.json",
    "trials/t0000/reports.jsonl",
)


@pytest.mark.parametrize("hostile", [fifo, loop, device, brackets, deep], ids=lambda h: h.__name__)
@pytest.mark.timeout(120)
def test_hostile_files_are_named_and_do_not_hide_other_sweeps(
    tune: Tune, hostile: Callable[[Path], None]
) -> None:
    tune.sweep("other")
    whole = tune.sweep("mine").root
    for name in FILES:
        shutil.copytree(whole, tune.cwd / "kept")
        (whole / name).parent.mkdir(exist_ok=True)
        hostile(whole / name)
        listed = tune("ls", code=None)
        assert [row[0] for row in listed.lines[1:3]] == ["mine", "other"], name
        for command in (("show", "mine"), ("best", "mine"), ("resume", "mine")):
            outcome = tune(*command, code=None)
            said = outcome.err + outcome.out
            assert outcome.code in (0, 2, 3), (name, command, outcome)
            assert outcome.code == 0 or Path(name).name in said, (name, command, outcome)
            assert "Traceback" not in said
        shutil.rmtree(whole)
        (tune.cwd / "kept").rename(whole)


LOOKS = (
    ("ls",),
    ("show", "mine"),
    ("show", "mine", "t0000"),
    ("show", "mine", "--csv"),
    ("show", "mine", "t0000", "--csv"),
    ("best", "mine"),
    ("report", "mine"),
    ("compare", "mine", "mine"),
    ("average", "mine"),
    ("export", "mine"),
    ("reproduce", "mine", "t0000"),
)
WITH_JSON = tuple((*look, "--json") for look in LOOKS[:8] if "--csv" not in look)
KINDS: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "torn": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "binary": lambda file: file.write_bytes(bytes(range(256))),
    "other": lambda file: file.write_bytes(b'{"format": 99}\n'),
    "missing": lambda file: file.unlink(),
    "folder": lambda file: (file.unlink(), file.mkdir()),
}
RECORDS = ("sweep.yaml", "state.json", "records.jsonl", "trial.json", "reports.jsonl")


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.timeout(120)
def test_every_look_at_a_damaged_record_names_it_and_has_one_exit_code(
    tune: Tune, name: str
) -> None:
    whole = tune.sweep("mine")
    for kind, damage in KINDS.items():
        shutil.copytree(whole.root, tune.cwd / "kept")
        damage(whole.root / name if name in RECORDS[:3] else whole.trial("t0000").root / name)
        edited = (name, kind) == ("sweep.yaml", "other")
        for look in (*LOOKS, *WITH_JSON):
            done = tune(*look, code=None)
            if name == "sweep.yaml" and "--csv" in look:
                assert done.code == 0  # the reports alone are read
                continue
            assert done.code == (2 if edited and look[0] != "ls" else 3), (kind, look, done)
            assert name in done.err, (kind, look, done)
            assert "Traceback" not in done.err
            if "--json" in look:
                assert "error" in json.loads(done.err)
                assert not done.out or json.loads(done.out)
        accepted = tune("best", "mine", "--accept-damage", code=None)
        assert (accepted.code == 0) == (name != "sweep.yaml"), (kind, accepted)
        assert name in accepted.err
        shutil.rmtree(whole.root)
        (tune.cwd / "kept").rename(whole.root)


def test_damaged_backup_is_named_and_leaves_no_half_sweep(tune: Tune) -> None:
    tune.sweep("mine")
    printed = tune("backup", "mine", "back ups").out
    assert "tune restore 'back ups/mine'" in printed
    stored = sorted((tune.cwd / "back ups" / "mine" / "files").rglob("*"))
    stored[-1].write_bytes(b"")
    assert "is damaged" in tune("restore", "back ups/mine", "--storage", "new", code=3).err
    assert list((tune.cwd / "new").iterdir()) == []
    shutil.copytree("sweeps/mine", "new/.mine.restored")  # as a killed process leaves it
    assert "no sweeps" in tune("ls", "--storage", "new").out


@pytest.mark.parametrize(
    ("file", "look"),
    [("notes.jsonl", ("report",)), ("trials/t0000/logs/attempt_0001/rank_0.log", ("logs",))],
)
def test_folder_in_the_place_of_a_file_is_named(
    tune: Tune, file: str, look: tuple[str, ...]
) -> None:
    (tune.sweep("mine").root / file).mkdir(parents=True)
    assert Path(file).name in tune(*look, "mine", code=None).err


def test_command_to_paste_quotes_the_folder(tune: Tune) -> None:
    paths, _ = tune.unfinished()
    moved = paths.root.parent.rename(tune.cwd / "my sweeps") / "mine"
    assert f"continue with: tune resume '{moved}'" in tune("show", moved).out
