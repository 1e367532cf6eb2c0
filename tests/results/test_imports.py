"""Results are read on a laptop: without Ray, and at once."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = [
    *("ray", "optuna", "mlflow", "torch", "transformers", "safetensors"),
    *("pandas", "pyarrow", "numpy", "sklearn", "trainables", "tuning"),
]


def test_importing_results_imports_nothing_heavy() -> None:
    modules = [f"results.{p.stem}" for p in (ROOT / "results").glob("*.py") if p.stem[0] != "_"]
    code = (
        f"import sys, {', '.join(sorted(modules))}\n"
        f"print(*sorted({{m.split('.')[0] for m in sys.modules}} & set({HEAVY!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
