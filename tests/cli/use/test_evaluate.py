"""`tune evaluate` on a language model that is really trained, with tasks of local files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from tests.cli.conftest import Tune
from tests.cli.trained import trained
from tests.trainables.examples import EXAMPLES

pytest.importorskip("lm_eval")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of packages of the harness
]
SWEEP: dict[str, Any] = {
    "name": "lm",
    "trainable": "causal_lm",
    "metric": "eval_loss",
    "space": {"learning_rate": {"grid_search": [1e-2, 1e-3]}},
    "fixed": EXAMPLES["causal_lm"].config,
    "scheduler": {"name": "none"},
    "tracking": {"name": "mlflow"},
}
TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
- {{metric: acc, aggregation: mean, higher_is_better: true}}
- {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
metadata: {{version: 3}}
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage, whose sweep grows by what the tests evaluate."""
    root = tmp_path_factory.mktemp("fresh")
    trained(SWEEP, root)
    return root


@pytest.fixture
def lm(tune: Tune, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> SweepPaths:
    monkeypatch.setenv("TUNE_STORAGE", str(fresh))
    monkeypatch.setenv("HF_HOME", str(tune.cwd / "hub"))
    return SweepPaths(fresh / "lm")


@pytest.fixture
def task(tune: Tune) -> Path:
    """A task file with 20 questions of three answers."""
    draw = random.Random(0)
    answers = ["return", "import", "print", "def"]
    rows = [
        {"question": f"f{i} =", "choices": draw.sample(answers, 3), "answer": draw.randrange(3)}
        for i in range(20)
    ]
    data = tune.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    (tune.cwd / "tasks").mkdir()
    return tune.write("tasks/words.yaml", TASK.format(name="words", data=data))


def test_the_scores_are_those_of_the_harness(tune: Tune, lm: SweepPaths, task: Path) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    document = json.loads(tune("evaluate", "lm", "--tasks", task, "--json").out)
    tune("export", "lm", "--no-verify", "--force")
    (export,) = lm.exports.glob("*-hf")
    manager = TaskManager(include_defaults=False)
    given = {"pretrained": str(export)}
    direct: Any = simple_evaluate("hf", given, [str(task)], task_manager=manager, device="cpu")
    expected, found = direct["results"]["words"], document["tasks"]["words"]
    assert found["metrics"] == {m: expected[f"{m},none"] for m in ("acc", "acc_norm")}
    assert found["errors"]["acc"] == pytest.approx(expected["acc_stderr,none"])
    assert (found["examples"], found["few_shot"], found["version"]) == (20, 0, "3")
    assert 0 < found["metrics"]["acc"] < 1
    line = f"`words` (20 examples, 0-shot): acc {found['metrics']['acc']:.4g}"
    assert line in (export / "README.md").read_text()
    tasks = str(task.parent) + "/"
    again = json.loads(tune("evaluate", str(export), "--tasks", tasks, "--json").out)
    assert again["tasks"] == document["tasks"]
    assert again["model"] == document["model"]


def test_the_scores_are_in_the_sweep_and_in_mlflow(tune: Tune, lm: SweepPaths, task: Path) -> None:
    from mlflow import MlflowClient

    shown = tune("evaluate", "lm", "--trial", "t0001", "--tasks", task, "--limit", "4").lines
    assert shown[0] == ["task", "metric", "value", "error", "few-shot", "examples"]
    row = next(line for line in shown if line[:2] == ["words", "acc"])
    (file,) = lm.evaluations.glob("t0001-*.json")
    kept = json.loads(file.read_text())
    assert (kept["limit"], kept["tasks"]["words"]["examples"]) == (4, 4)
    assert float(row[2]) == pytest.approx(kept["tasks"]["words"]["metrics"]["acc"], rel=1e-3)
    client = MlflowClient(f"sqlite:///{lm.storage.tracking_db}")
    experiment = client.get_experiment_by_name("lm")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.`tune.trial_id` = 't0001'")
    metrics = kept["tasks"]["words"]["metrics"]
    assert {name: runs[0].data.metrics[f"eval/words/{name}"] for name in metrics} == metrics


def test_prompts_that_are_cut_are_counted(tune: Tune, lm: SweepPaths, task: Path) -> None:
    shown = tune("evaluate", "lm", "--tasks", task, "--few-shot", "3", "--limit", "2").out
    assert "cut        6 prompts" in shown


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--tasks", ","), "needs names of tasks"),
        (("--tasks", "arc_eazy"), "did you mean 'arc_easy'?"),
        (("--tasks", "./tasks/none.yaml"), "no task file is there"),
        (("--tasks", "./tasks/words.yaml", "--chat"), "has no chat template"),
        (("--tasks", "./tasks/lost.yaml"), "lost.yaml: cannot be loaded"),
    ],
)
def test_evaluate_refuses_in_one_line(
    tune: Tune, lm: SweepPaths, task: Path, options: tuple[str, ...], problem: str
) -> None:
    tune.write("tasks/lost.yaml", TASK.format(name="lost", data=tune.cwd / "none.jsonl"))
    refused = tune.refused("evaluate", "lm", *options)
    assert problem in refused
    assert refused.count("\n") == 1


def test_answers_as_long_as_the_context_are_refused(tune: Tune, lm: SweepPaths, task: Path) -> None:
    written = task.read_text().partition("doc_to_choice")[0] + "doc_to_target: answer\n"
    task.write_text(written.replace("multiple_choice", "generate_until"))
    assert "max_gen_toks" in tune.refused("evaluate", "lm", "--tasks", task)
