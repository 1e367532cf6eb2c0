"""The built wheel alone, in an empty environment and an empty folder, runs its first sweep."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.wheel
@pytest.mark.timeout(1800)
def test_wheel_runs_its_first_sweep_in_an_empty_environment(tmp_path: Path) -> None:
    built = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(tmp_path)]
    subprocess.run([*built, str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    python = getattr(sys, "_base_executable", sys.executable)
    smoke = [str(ROOT / ".ci" / "smoke"), python, str(wheel), str(tmp_path)]
    output = subprocess.run(smoke, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "t0001" in output.stdout
