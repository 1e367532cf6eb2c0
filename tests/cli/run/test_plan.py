"""`tune plan`: disk space, mirrors, the training code and its data."""

from __future__ import annotations

import json
import re

import pytest

from search_spaces.examples import find_example
from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import DIGITS, Tune
from tests.results.tracking.servers import failing_server, no_server
from tests.results.written import add_trial
from trainables.registry import resolve
from tuning.api import create
from tuning.cli.run.plan import cost_lines
from tuning.controller.preflight.relative_paths import (
    file_notes,
    warn_relative_paths,
    with_absolute_fixed,
)
from tuning.controller.preflight.trainables import code_problems


def test_plan_warns_if_the_disk_is_too_small(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.storage.atomic.free_bytes", lambda folder: 1000)
    spec = load_sweep(DIGITS).spec
    lines = cost_lines(spec, [{"learning_rate": 1e-2, "hidden_units": 32}], tune.cwd)
    assert lines[-1].startswith("           only 1 kB are free in ")


def test_mirror_address_is_checked(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tune.refused("plan", DIGITS, "--set", "checkpoint.mirror=bucket/x")
    assert output == (
        "bucket/x: URI has empty scheme: 'bucket/x'; write s3://bucket/prefix, "
        "gs://… or abfs://container@account.dfs.core.windows.net/prefix\n"
    )
    monkeypatch.setenv("SOME_API_KEY", "canary-b2f1c0de")
    for secret in ("s3://me:pa55word@bucket/x", "s3://bucket/canary-b2f1c0de"):
        output = tune.refused("run", DIGITS, "--set", f"checkpoint.mirror={secret}")
        assert "checkpoint.mirror: holds a secret" in output
        assert "write ${NAME} in its place" in output


def test_server_of_mlflow_that_fails_is_named(tune: Tune) -> None:
    for server in (no_server, failing_server):
        with server() as uri:
            output = tune("plan", DIGITS, "--set", f"tracking.uri={uri}").out
        assert f"\ntracking   MLflow at {uri} does not answer (" in output


def test_warm_start_is_counted_as_the_sweep_counts_it(tune: Tune) -> None:
    loop = "def f(config):\n    tune.report({'loss': config['x']})\n"
    (tune.cwd / "loop.py").write_text(f"from ray import tune\n{loop}")
    sweep = {"trainable": "loop.py:f", "metric": "loss", "space": {"x": {"uniform": [0, 1]}}}
    sweep |= {
        "name": "first",
        "mode": "min",
        "budget": {"trials": 2},
        "scheduler": {"name": "none", "max_t": 1},
    }
    (tune.cwd / "first.yaml").write_text(json.dumps(sweep))
    add_trial(create("first.yaml"), 0, {1: 0.5}, x=0.5)
    assert "warm start 1 of 1 trials of first (values count)" in (
        tune("plan", "first.yaml", "--set", "search={name: tpe, warm_start: [first]}").out
    )
    changes = "--set", "search={name: tpe, warm_start: [first]}", "--set", "mode=max"
    assert "first: has min loss, not max" in tune.refused("run", "first.yaml", *changes)


def test_pbt_refuses_a_mirror(tune: Tune) -> None:
    change = "scheduler={name: pbt, max_t: 9}", "checkpoint.mirror=s3://bucket/x"
    output = tune.refused("plan", DIGITS, *(a for c in change for a in ("--set", c)))
    assert "pbt copies checkpoints within the sweep folder, which are not mirrored" in output


LOOPS = """
from ray import tune
from ray.tune import report as say


def two(config, worker): ...


def tuned(config):
    tune.report({"loss": 1})
    say({"loss": 1})
    ray.train.report({})


def fine(config, *, seed=0):
    ray.train.report({"loss": config["lr"]})


import no_such_module


class Mine: ...
"""


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        ("two", ["6: two() is called with one argument, the configuration, a dict"]),
        (
            "tuned",
            [f"{n}: ray.tune.report has no effect in a Ray Train loop; call" for n in (10, 11)],
        ),
        ("fine", []),
    ],
)
def test_mistakes_of_a_ray_train_loop_show_in_its_source(
    tune: Tune, name: str, problems: list[str]
) -> None:
    file = tune.write("loops.py", LOOPS)
    found = code_problems(resolve(f"loops.py:{name}"))
    assert len(found) == len(problems)
    for line, problem in zip(found, problems, strict=True):
        assert line.startswith(f"{file}:{problem}")


IGNORED = """
name: t
trainable: loops.py:fine
metric: loss
space: {lr: {uniform: [0, 1]}}
scheduler: {name: none}
budget: {trials: 1}
"""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            "scheduler={name: asha_promote, max_t: 4}",
            "scheduler.name: asha_promote pauses at rungs",
        ),
        ("checkpoint.every=5", "checkpoint.every: has no effect: a Ray Train loop decides itself"),
        ("replicates=2", "replicates: would repeat one trial: the loop's file does not read"),
    ],
)
def test_settings_that_a_loop_ignores_are_refused(tune: Tune, change: str, problem: str) -> None:
    tune.write("loops.py", LOOPS)
    output = tune.refused("plan", tune.write("t.yaml", IGNORED), "--set", change)
    assert f"--set {change}: {problem}" in output


def test_names_that_the_loop_does_not_know_are_refused(tune: Tune) -> None:
    file = tune.write("t.yaml", IGNORED.replace("fine", "loop") + "fixed: {epoch: 3}\n")
    tune.write(
        "loops.py",
        "def loop(config):\n"
        "    for _ in range(config.get('epochs', 3)):\n"
        "        report({'loss': config['rate'], 'm': config['m'] if 'm' in config else 0})\n",
    )
    where = f"loop() ({tune.cwd}/loops.py:1) does not read"
    assert tune.refused("plan", file, "--set", "fixed={epoch: 3}").splitlines() == [
        f"t.yaml:3: trainable: {tune.cwd}/loops.py:1: loop() reads config['rate'], which is "
        "neither in space nor in fixed",
        f"t.yaml:5: space.lr: {where} config['lr'] (valid: epochs, m, rate)",
        f"--set fixed={{epoch: 3}}: fixed.epoch: {where} config['epoch'] (did you mean 'epochs'?)",
    ]
    for whole in ("train(config)", "use(**config)", "[config[name] for name in names]"):
        tune.write("loops.py", f"def loop(config):\n    report({whole})\n")
        tune("plan", file)


UNGUARDED = """
from ray.train.torch import TorchTrainer


def loop(config):
    train(**config)


def main():
    TorchTrainer(loop).fit()


if __name__ == "__main__":
    main()
CALL
"""


@pytest.mark.parametrize(
    ("call", "shown"), [("main()", "main()"), ("result = TorchTrainer(loop).fit()", "fit()")]
)
def test_unguarded_fit_and_a_missing_report_are_refused(tune: Tune, call: str, shown: str) -> None:
    tune.write("loops.py", UNGUARDED.replace("CALL", call))
    file = tune.write("t.yaml", IGNORED.replace("fine", "loop"))
    output = tune.refused("plan", file)
    assert f"t.yaml:3: trainable: {tune.cwd}/loops.py:15: calls {shown} when a worker" in output
    assert f"t.yaml:3: trainable: {tune.cwd}/loops.py: never calls ray.train.report" in output
    tune.write("loops.py", UNGUARDED.replace("CALL", "# report"))
    tune("plan", file)


def test_data_set_without_a_trainer_is_refused(tune: Tune) -> None:
    file = tune.write("t.yaml", IGNORED.replace("fine", "loop"))
    loop = "def loop(config):\n    ray.train.get_dataset_shard(str(config))\n    report()\n"
    tune.write("loops.py", loop)
    output = tune.refused("plan", file)
    assert f"trainable: {tune.cwd}/loops.py:2: get_dataset_shard() finds no data set" in output
    tune.write("loops.py", f"{loop}\ndef main(config):\n    Trainer(loop, config).fit()\n")
    tune("plan", file, "--set", "trainable=loops.py:main")


def test_replicates_need_seeds_of_their_own(tune: Tune) -> None:
    tune.write("loops.py", "def fine(config):\n    report(config['seed'], config['lr'])\n")
    file = tune.write("t.yaml", f"{IGNORED}replicates: 2\nfixed: {{seed: 0}}\n")
    assert "t.yaml:9: fixed.seed: gives every replicate this seed" in tune.refused("plan", file)
    tune("plan", file, "--set", "fixed={}")


def test_script_is_found_beside_the_sweep_file_first(tune: Tune) -> None:
    (beside := tune.cwd / "folder").mkdir()
    tune.write("folder/loops.py", LOOPS)
    file = tune.write("folder/t.yaml", IGNORED)
    assert load_sweep(file).spec.trainable == f"{beside}/loops.py:fine"
    assert warn_relative_paths(load_sweep(file)) == []
    (beside / "loops.py").rename(tune.write("loops.py", ""))
    assert load_sweep(file).spec.trainable == "loops.py:fine"
    taken = f"not beside t.yaml, taken from {tune.cwd}"
    assert warn_relative_paths(load_sweep(file)) == [f"loops.py: {taken}"]
    assert "no such file" in tune.refused("plan", file, "--set", "trainable=nowhere.py:loop")


def test_paths_are_those_beside_the_sweep_file_first(tune: Tune) -> None:
    (beside := tune.cwd / "folder").mkdir()
    for name in ("folder/a.txt", "a.txt", "b.txt", "train"):
        tune.write(name, "some text")
    tune.write("folder/loops.py", LOOPS)
    paths = "[a.txt, b.txt, [none.txt, 0.5 * 2], {more: ./a.txt}]"
    file = tune.write("folder/t.yaml", IGNORED + f"fixed: {{paths: {paths}, split: train}}\n")
    assert with_absolute_fixed(load_sweep(file)).fixed == {
        "paths": [
            f"{beside}/a.txt",
            f"{tune.cwd}/b.txt",
            ["none.txt", "0.5 * 2"],
            {"more": f"{beside}/a.txt"},
        ],
        "split": "train",
    }
    taken = f"not beside t.yaml, taken from {tune.cwd}"
    assert warn_relative_paths(load_sweep(file)) == [f"b.txt: {taken}"]
    command = load_sweep(file, ["trainable=null", "command=[cat, --in=b.txt, a.txt, '{lr}']"])
    assert warn_relative_paths(command) == [f"--in=b.txt, b.txt: {taken}"]
    change = ["trainable=causal_lm", "space={beta2: {uniform: [0.9, 0.99]}}"]
    change += ["fixed={data: {source: files, paths: '*.txt'}, model_name_or_path: ./b.txt}"]
    assert with_absolute_fixed(load_sweep(file, change)).fixed == {
        "data": {"source": "files", "paths": [f"{beside}/*.txt"]},
        "model_name_or_path": "./b.txt",
    }


def test_class_that_cannot_be_imported_is_one_line(tune: Tune) -> None:
    tune.write("loops.py", LOOPS)
    output = tune.refused("plan", DIGITS, "--set", "trainable=loops.py:Mine")
    assert output == (
        "--set trainable=loops.py:Mine: trainable loops.py:Mine: cannot be imported: "
        "ModuleNotFoundError: No module named 'no_such_module' (loops.py:19)\n"
    )


def test_metric_that_is_not_reported_is_refused(tune: Tune) -> None:
    output = tune.refused("plan", DIGITS, "--set", "metric=acc")
    assert output == (
        "--set metric=acc: metric: digits does not report 'acc' (did you mean 'accuracy'?)\n"
    )
    change = ["--set", "metric=[loss, speed]", "--set", "mode=min", "--set", "trainable=federated"]
    change += ["--set", "space={rounds: {choice: [1, 2]}}", "--set", "fixed={}"]
    assert "federated does not report 'speed' (valid: accuracy, clients, loss, train_loss)" in (
        tune.refused("run", DIGITS, *change)
    )


def test_outcome_constraint_on_a_metric_that_is_not_reported_is_refused(tune: Tune) -> None:
    limit = ["--set", "outcome_constraints=[losss <= 3]"]
    assert "digits does not report 'losss' (did you mean 'loss'?)" in (
        tune.refused("plan", DIGITS, *limit)
    )
    tune.write("code.jsonl", '{"text": "def f(): pass"}')
    sets = ["--set", "fixed.data={source: stdlib, selection: {code: code.jsonl}}", "--set"]
    llm = ["plan", str(find_example("llm")), *sets]
    output = tune.refused(*llm, "outcome_constraints=[eval_loss/code <= 3]")
    assert output.endswith("""'code'; to name 'eval_loss/code', write metric("eval_loss/code")\n""")
    tune(*llm, 'outcome_constraints=[metric("eval_loss/code") <= 3]')


def test_missing_data_files_are_refused(tune: Tune) -> None:
    text = (
        "name: t\ntrainable: {}\nmetric: eval_loss\nscheduler: {{name: none}}\n"
        "space: {}\nbudget: {{trials: 1}}\n"
        "fixed: {}\n"
    )
    data = "{data: {source: files, paths: [texts/*.txt, more/*.txt]}, model_name_or_path: ./base}"
    tune.write("lm.yaml", text.format("causal_lm", "{beta2: {uniform: [0.9, 0.99]}}", data))
    (tune.cwd / "texts").mkdir()
    tune.write("texts/a.txt", "a")
    assert tune.refused("plan", "lm.yaml").splitlines() == [
        f"lm.yaml:7: fixed.data.paths: no file matches {tune.cwd}/more/*.txt",
        f"lm.yaml:7: fixed.model_name_or_path: no such folder: base (from {tune.cwd})",
    ]
    client = f"{{task: causal_lm, client: {data}}}"
    tune.write("fed.yaml", text.format("federated", "{rounds: {choice: [1, 2]}}", client))
    output = tune.refused("run", "fed.yaml")
    assert f"fed.yaml:7: fixed.client.data.paths: no file matches {tune.cwd}/more/*.txt" in output


def test_relative_paths_in_the_space_are_refused(tune: Tune) -> None:
    talk = json.dumps({"question": "a", "answer": "b"})
    for name in ("a.jsonl", "b.jsonl"):
        tune.write(name, talk)
    of = "{{source: files, paths: {}}}"
    given = "{choice: [" + ", ".join(map(of.format, ("a.jsonl", f"{tune.cwd}/b.jsonl"))) + "]}"
    file = tune.write("t.yaml", SFT.replace("  data: {source: files, paths: talks.jsonl}\n", ""))
    output = tune.refused("plan", file, "--set", f"space.data={given}")
    assert f"write {tune.cwd}/a.jsonl" in output
    assert output.count("trials run in others") == 1
    none = tune.refused("plan", file, "--set", "fixed.data={source: files, paths: []}")
    assert "fixed.data" in none


LAYOUT = """
name: big
trainable: causal_lm
metric: eval_loss
mode: min
space: {learning_rate: {loguniform: [0.001, 0.01]}}
fixed: {num_layers: 4, batch_size: 64}
budget: {trials: 2}
scheduler: {name: none}
resources: {workers: 4, layout: {dp_shard: -1, tp: 2}}
cluster: {cpus: 4, bandwidth: 1, tflops: 0.1}
"""


SFT = """
name: talks
trainable: sft
metric: eval_loss
mode: min
fixed:
  hidden_size: 16
  num_layers: 1
  vocab_size: 300
  data: {source: files, paths: talks.jsonl}
space: {learning_rate: {loguniform: [1.0e-4, 1.0e-2]}}
budget: {trials: 1}
"""


def test_form_of_rows_is_said(tune: Tune) -> None:
    talk = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    row = json.dumps({"conversations": [*talk, talk[0]]})
    (tune.cwd / "talks.jsonl").write_text(f"{row}\n" * 1204)
    (tune.cwd / "talks.yaml").write_text(SFT)
    notes = file_notes(load_sweep(tune.cwd / "talks.yaml"), files=True)
    assert notes == [
        "data: ShareGPT conversations, 1,204 rows; 1,204 end with a turn that is no answer,"
        " which is left out"
    ]
    (tune.cwd / "talks.jsonl").write_text('{"promt": "a", "answer": "b"}\n')
    assert "data.question: promt" in tune.refused("plan", "talks.yaml")


def test_layout_is_simulated_without_its_ranks(tune: Tune) -> None:
    file = tune.write("big.yaml", LAYOUT)
    lines = tune("plan", file, "--simulate", "--workers", "16").out.splitlines()
    assert lines[0] == "layout     dp_replicate 1 x dp_shard 8 x tp 2: 16 ranks"
    assert "weights" in lines[1]
    assert "sends dp_shard" in lines[2]
    nodes = [line.partition("  ")[0] for line in lines[3:]]
    assert nodes == ["1 node", "2 nodes", "4 nodes", "8 nodes"]
    assert all(line.endswith(("90%", "85%", "75%")) for line in lines[4:])
    facts = json.loads(tune("plan", file, "--simulate", "--workers", "16", "--json").out)
    assert facts["ranks"] == 16
    assert facts["stages"][0]["traffic"]["dp_shard"]["bytes"] > 0
    assert [one["target"] for one in facts["nodes"]] == [None, 0.90, 0.85, 0.75]


def test_layout_that_does_not_fit_is_not_simulated(tune: Tune) -> None:
    file = tune.write("big.yaml", LAYOUT)
    output = tune.refused("plan", file, "--simulate", "--workers", "7")
    assert "tp 2 does not divide 7; nearest layout: " in output
    assert "only with --simulate" in tune.refused("plan", file, "--workers", "8")
    assert "--simulate takes causal_lm, sft" in tune.refused("plan", DIGITS, "--simulate")


CHOSEN = """
name: shapes
trainable: causal_lm
metric: eval_loss
space: {hidden_size: {choice: [32, 256]}}
fixed: {num_layers: 2, num_heads: 4, sequence_length: 32, batch_size: 8}
budget: {trials: 4}
scheduler: {name: none}
resources: {workers: 2, layout: auto, memory_per_worker: 0.03}
tracking: {name: none}
"""


def test_plan_lists_the_layouts_that_fit(tune: Tune) -> None:
    tune.write("shapes.yaml", CHOSEN)
    out = tune("plan", "shapes.yaml").out
    assert re.search(
        r"layout     auto: taken .* by \d+, .* by \d+ of \d+ configurations, with 30.7 MiB a", out
    )
    marks = dict(re.findall(r"^ +({.*?}): [\d.]+ MiB a rank, (taken|fits|too much) \(", out, re.M))
    assert marks == {
        "{dp_replicate: 2}": "too much",
        "{dp_shard: 2}": "taken",
        "{tp: 2}": "fits",
        "{tp: 2, sequence_parallel: true}": "fits",
        "{pp: 2}": "fits",
        "{cp: 2}": "fits",
    }
    assert "has room for" not in out
    more = tune("plan", "shapes.yaml", "--set", "resources.workers={min: 1, max: 8}").out
    assert "it needs" not in more, "some layout fits two workers"
