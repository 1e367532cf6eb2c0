"""Heavy packages are imported inside the functions that need them, not with the modules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {
    *("ray", "optuna", "mlflow", "torch", "transformers", "safetensors", "tokenizers"),
    *("pandas", "pyarrow", "numpy", "scipy", "sklearn", "plotly", "onnx", "gguf"),
}

MODULES = """
for name in sys.argv[1:]:
    importlib.import_module(name)
    check(name)
"""
SWEEP_FILE = """
from search_spaces.loading.sweep_file import load_sweep
load_sweep(Path("search_spaces/llm.yaml"))
check("a sweep file")
"""
CONFIGS = """
from trainables.registry import TRAINABLES, resolve
start = {"sft": {"hidden_size": 8}}
needed = {"distill": {"teacher": {"hidden_size": 8}}, "grpo": start, "dpo": start}
needed |= dict.fromkeys(("xgboost", "lightgbm"), {"data": {"source": "iris"}})
for name in TRAINABLES:
    model, given = resolve(name).Config, needed.get(name, {})
    model.problems(given), model(**given).checkpoint_bytes
    check(f"the configuration of {name}")
"""
SHORTEST = """
import trainables.digits.config, trainables.digits.task
ours = [m for m in sys.modules if m.partition(".")[0] in ("search_spaces", "results", "trainables")]
assert len(ours) <= 60, f"digits pulls {len(ours)} modules of this project"
"""
COMMANDS = """
from tuning.cli import main
for line in sys.argv[1:]:
    sys.argv = ["tune", *line.split()]
    try:
        main()
    except SystemExit as e:
        assert not e.code, e.code
    check(f"tune {line}")
"""


def assert_light(program: str, *args: str, cwd: Path = ROOT, allowed: Collection[str] = ()) -> None:
    """Run a program in a fresh process; it fails at a `check` after a heavy package was imported.

    Args:
        program: statements; `check(name)` looks at what is imported by then.
        args: what it finds in `sys.argv`.
        cwd: its working folder.
        allowed: heavy packages that it may import.
    """
    prelude = f"""
import importlib, sys
from pathlib import Path
def check(name):
    found = {{m.partition(".")[0] for m in sys.modules}} & {HEAVY.difference(allowed)}
    assert not found, f"{{name}} imports {{sorted(found)}}"
"""
    done = subprocess.run(
        [sys.executable, "-c", prelude + program, *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def modules(*patterns: str) -> list[str]:
    """Names of the modules whose files match, `__init__` left out."""
    files = sorted({file.relative_to(ROOT) for p in patterns for file in ROOT.glob(p)})
    names = [".".join(file.with_suffix("").parts) for file in files]
    return [name for name in names if not name.endswith("__init__")]


PAGES = modules("results/report/**/*.py")
RUNTIMES = modules("results/export/runtimes/*.py")  # programs of their own
RESULTS = [m for m in modules("results/**/*.py") if m not in {*PAGES, *RUNTIMES}]
CONTRACT = [f"trainables.{name}" for name in ("base", "job", "worker", "registry")]
BEFORE_RAY = [
    "tuning.cluster.connection",
    "tuning.controller.session",
    "tuning.controller.ray_tune.runner",
]
TRAINABLES = modules("trainables/*/config.py", "trainables/*/trainable.py")


CASES: dict[str, tuple[str, list[str]]] = {
    "sweep_file": (SWEEP_FILE, []),
    "search_spaces": (MODULES, modules("search_spaces/**/*.py")),
    "results": (MODULES, RESULTS),
    "trainables": (MODULES, [*CONTRACT, *TRAINABLES]),
    "configs": (CONFIGS, []),
    "shortest_trainable": (SHORTEST, []),
    "commands": (COMMANDS, ["--version", "--help", "run --help", "schema"]),
}


@pytest.mark.parametrize("case", CASES)
def test_importing_is_cheap(case: str) -> None:
    program, args = CASES[case]
    assert_light(program, *args)


def test_importing_report_pages_loads_only_the_plotting_library() -> None:
    assert_light(MODULES, *PAGES, allowed={"plotly", "numpy"})


def test_torch_is_not_imported_before_ray_starts() -> None:
    assert_light(MODULES, *BEFORE_RAY, allowed={"optuna", "numpy"})


def test_module_level_import_is_caught(tmp_path: Path) -> None:
    (tmp_path / "heavy.py").write_text("import numpy\n")
    with pytest.raises(AssertionError, match=r"heavy imports \['numpy'\]"):
        assert_light(MODULES, "heavy", cwd=tmp_path)
