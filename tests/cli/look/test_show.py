"""`tune show`: the trials of a sweep, and one trial."""

from __future__ import annotations

import json

import pytest

from results.records.failures import Remedy
from results.records.machines import Machine
from results.records.reports import Report, read_chain
from results.records.trial import Attempt, TrialState, read_trial, write_trial
from results.records.worker_samples import sample_line
from results.sweep_folder.lock import acquire_lock
from tests.cli.conftest import Tune, add_checkpoint
from tests.reports import append_report
from tests.results.report.messages import messages
from tests.tuning.simulate import train


def test_show_sweep(tune: Tune) -> None:
    tune.sweep("mine")
    output = tune("show", "mine")
    best = tune.best("mine")
    assert output.lines[0] == ["trial", "state", "step", "loss", "x", "opt.k", "time"]
    assert output.lines[1][:2] == [best["trial"], "*"]
    assert output.lines[1][4:7] == [
        f"{best['value']:.4g}",
        f"{best['params']['x']:.4g}",
        str(best["params"]["opt.k"]),
    ]
    values = [float(words[-4]) for words in output.lines[1:7]]
    assert values == sorted(values)
    assert output.lines[-1] == ["6", "of", "6", "trials", "finished;", "done"]
    assert output.lines[-2][:2] == ["early", "values:"]


def test_show_counts_failures(tune: Tune) -> None:
    paths = tune.sweep("mine")
    remedies_of = {"t0000": [Remedy.RETRY, Remedy.SHRINK], "t0001": [Remedy.SHRINK]}
    for trial, remedies in remedies_of.items():
        record = read_trial(paths.trial(trial))
        attempts = [
            Attempt(number=i, started=0, ended=1, error=f"rank 0: {r}", remedy=r)
            for i, r in enumerate(remedies, 1)
        ]
        update = {"attempts": tuple(attempts), "adjusted": {"micro_batch_size": 4}}
        write_trial(paths.trial(trial), record.model_copy(update=update))
    assert "failures: 2 shrink, 1 retry" in tune("show", "mine").out
    output = tune("show", "mine", "t0000").out
    assert "attempt 2 took 1s with 1 worker: shrink: rank 0: shrink" in output
    assert 'adjusted {"micro_batch_size": 4}' in output


def test_show_splits_the_time_by_phase(tune: Tune) -> None:
    paths = tune.sweep("mine")
    files = paths.trial("t0000")
    files.attempt(1).mkdir(parents=True, exist_ok=True)
    for rank, seconds in enumerate(({"compute": 2.0, "communication": 3.0}, {"compute": 5.0})):
        files.samples(1, rank).write_text(sample_line(1, 1.0, {}, seconds) * 2)
    output = tune("show", "mine", "t0000").out
    assert "where the time went, mean (least to most) of 2 ranks" in output
    assert "  compute        70%   7.00s  (4.00s to 10.00s)" in output
    assert "bottleneck: communication takes 30% of the time; " in output
    assert "rank 1 is slow: it works for 2.50 x the others' time" in output
    tune("report", "mine")
    page = paths.report.read_text()
    assert "Where the time goes" in messages(page)
    assert "Bottleneck: communication takes 30% of the time" in page


def test_show_names_excluded_machines(tune: Tune) -> None:
    paths = tune.sweep("mine")
    record = read_trial(paths.trial("t0000"))
    sick = (Machine(id="0123456789", name="gpu-7"),)
    attempts = (
        Attempt(number=1, started=0, ended=1, error="ECC", blamed=sick, workers=2),
        Attempt(number=2, started=1, ended=2, kept_off=sick),
        Attempt(number=3, started=2, ended=3, kept_off=sick, in_place=True),
    )
    write_trial(paths.trial("t0000"), record.model_copy(update={"attempts": attempts}))
    output = tune("show", "mine", "t0000").out
    assert "attempt 1 took 1s with 2 workers: ECC\n  blamed on gpu-7 (01234567)\n" in output
    assert "with 1 worker\n  avoids gpu-7 (01234567)\n" in output
    assert "\n  no machine other than gpu-7 (01234567) fits, so it runs there again\n" in output


def test_show_prints_the_resume_command(tune: Tune) -> None:
    paths, _ = tune.unfinished()
    status, alive, advice = tune("show", "mine").out.splitlines()[-3:]
    assert status == "0 of 6 trials finished; interrupted"
    assert alive.startswith("last sign of life 20")
    assert advice == "continue with: tune resume mine"
    with acquire_lock(paths.lock):
        assert "finished; driven by process " in tune("show", "mine").out
    # from elsewhere the command names the folder
    tune.monkeypatch.chdir("/")
    output = tune("show", paths.root).out
    assert output.endswith(f"continue with: tune resume {paths.root}\n")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_table_never_truncates_a_value(tune: Tune, width: int) -> None:
    space = {f"a_long_name_{i}": {"uniform": [0.0, 1e-5]} for i in range(9)}
    _, run = tune.begun(space=space)
    train(run, run.next_trial(), upto=2, value=lambda _, step: 1 / 3 / step)
    wide = tune("show", "mine").lines
    tune.monkeypatch.setenv("COLUMNS", str(width))
    output = tune("show", "mine")
    assert all(len(line) <= width for line in output.out.splitlines())
    assert "…" not in output.out
    trial = next(words for words in output.lines if words[:1] == ["t0000"])
    shown = len(trial) - 6
    assert trial[:-1] == wide[-5][: 5 + shown]
    missing = " ".join(output.out.split()).partition("left out: ")[2].partition(" 0 of 6")[0]
    assert missing.split(", ") == list(space)[shown:]
    assert shown == {40: 0, 60: 2, 80: 4, 120: 8}[width]


def test_terminal_without_a_size_shows_all(tune: Tune) -> None:
    tune.sweep("mine")
    tune.monkeypatch.setenv("COLUMNS", "0")
    assert "t0000" in tune("show", "mine").out
    assert "t0000" in tune("show", "mine", "t0000").out
    assert "mine" in tune("ls").out


def test_text_is_not_parsed_as_markup(tune: Tune) -> None:
    space = {"x": {"choice": ["[/b]", ":boom:"]}}
    _, run = tune.begun(space=space, failure={"max_retries": 0})
    job = run.next_trial()
    error = "RuntimeError: no [/dev/null] :boom: [red]"
    run.on_failed(job.trial_id, error)
    assert tune("show", "mine").lines[1][4] == job.config["x"]
    lines = tune("show", "mine", "t0000").out.splitlines()
    assert lines[0] == f"t0000 failed: {error}"
    assert lines[3].startswith("attempt 1 took ")
    assert lines[3].endswith(f"s with 1 worker: retry: {error}")


def test_show_trial(tune: Tune) -> None:
    paths = tune.sweep("mine", fixed={"epochs": 9})
    record = read_trial(paths.trial("t0000"))
    whole, broken = (add_checkpoint(paths, "t0000", step) for step in (3, 6))
    (broken / "model.safetensors").write_bytes(b"WEIGHTS")
    lines = tune("show", "mine", "t0000").out.splitlines()
    assert lines[:3] == [
        f"t0000 {record.state}: {record.reason}",
        f"searched {json.dumps(record.params)}",
        'fixed {"epochs": 9}',
    ]
    header = next(i for i, line in enumerate(lines) if line.startswith("step"))
    assert lines[header].split()[:2] == ["step", "loss"]
    rows = lines[header + 1 :][: record.end_step]
    assert [int(row.split()[0]) for row in rows] == list(range(1, record.end_step + 1))
    assert lines[-4].startswith("attempt 1 took ")
    assert lines[-3:] == [
        f"  logs {paths.trial('t0000').attempt(1)}",
        f"checkpoints of steps 3, 6 in {whole.parent}",
        f"damaged {broken}: model.safetensors has another SHA-256 than its manifest says",
    ]
    assert tune("show", "mine", "t0001").out.splitlines()[-1] == "no checkpoints"


def test_show_draws_the_family_tree(tune: Tune) -> None:
    pbt = {"name": "pbt", "max_t": 9, "interval": 3, "mutate": ["x"]}
    paths = tune.sweep(scheduler=pbt, budget={"trials": 8})
    output = tune("show", "simulated").out
    lines = output[output.index("inherited weights") :].splitlines()
    assert any(" at step 3: x " in line and " → " in line for line in lines)
    assert any(" at step 6: x " in line for line in lines)
    clone = next(line for line in lines if " at step 3: " in line).split(" at ")[0].split()[-1]
    assert "at step 3 inherited the weights of t" in tune("show", "simulated", clone).out
    tune("report", "simulated")
    page = (paths.results / "report.html").read_text()
    drawn = messages(page)["Inherited weights"]
    assert f"{clone} from t" in str(drawn["figure"])
    assert clone in [row[1] for row in drawn["rows"]]


def test_clock_of_a_dead_driver_stands_still(tune: Tune) -> None:
    paths, run = tune.unfinished()
    began = run.records["t0000"].attempts[0].started
    last = Report(step=99, metrics={"loss": 0.5}, attempt=1, time=began + 42)
    append_report(paths.trial("t0000"), last)
    [row] = [words for words in tune("show", "mine").lines if words[:1] == ["t0000"]]
    assert (row[2], row[-1]) == ("interrupted", "42s")
    shown = tune("show", "mine", "t0000").out
    assert shown.startswith("t0000 interrupted\n")
    assert "attempt 1 took 42s" in shown
    with acquire_lock(paths.lock):  # a driver runs it
        [row] = [words for words in tune("show", "mine").lines if words[:1] == ["t0000"]]
        assert row[2] == "running"


def test_show_counts_the_reports_that_lack_the_metric_before_the_last(tune: Tune) -> None:
    paths, _ = tune.unfinished()
    files = paths.trial("t0000")
    chain, record = read_chain(files), read_trial(files)
    last = chain.last_step or 0
    for step, metrics in ((last + 1, {"other": 1.0}), (last + 2, {"loss": 0.5})):
        append_report(files, Report(step=step, metrics=metrics, attempt=1, time=1.0))
    finished = {"state": TrialState.COMPLETED, "end_step": last + 2}
    write_trial(files, record.model_copy(update=finished))
    output = tune("show", "mine")
    assert f"1 of {len(chain.lines) + 2} reports of t0000 lack the metric" in output.out
    assert "0.5" in output.lines[1]


def test_costs_are_in_ls_show_and_of_each_trial(tune: Tune) -> None:
    paths = tune.sweep("mine", prices={"cpu_hour": 3600.0, "currency": "EUR"})
    for number, trial in enumerate(paths.trial_ids()):
        files, ended = paths.trial(trial), 12.0 if number < 2 else 10.0
        state = TrialState.COMPLETED if number else TrialState.STOPPED
        attempts = (Attempt(number=1, started=10, ended=ended, cpus=1.5),)
        update = {"attempts": attempts, "state": state}
        write_trial(files, read_trial(files).model_copy(update=update))
    spent = "spent 0.0017 CPU-hours, 6.00 EUR, of which 3.00 EUR stopped early"
    shown = tune("show", "mine")
    assert spent in shown.out
    rows = shown.out.splitlines()
    assert rows[0].rstrip().endswith(" EUR")
    assert sum(row.rstrip().endswith(" 3.00") for row in rows) == 2
    assert "spent 0.00083 CPU-hours, 3.00 EUR\n" in tune("show", "mine", "t0001").out
    assert "0.00 CPU, 6.00 EUR" in tune("ls").out
