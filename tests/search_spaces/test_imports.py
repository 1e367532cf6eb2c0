"""A search space is data: reading one loads no ML library."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {"torch", "ray", "optuna", "mlflow", "pandas", "transformers", "pyarrow", "numpy"}
PROGRAM = """
import json, sys
from pathlib import Path
import search_spaces.loading.sweep_file
search_spaces.loading.sweep_file.load_sweep(Path(search_spaces.__file__).with_name("llm.yaml"))
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_loading_a_sweep_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert HEAVY.isdisjoint(json.loads(done.stdout))
