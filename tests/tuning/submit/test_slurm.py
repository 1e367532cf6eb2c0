"""The batch script for Slurm; `tests/cluster/test_slurm.py` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from results.paths import SweepPaths
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import ROOT
from tuning.submit.engine import Job, answer
from tuning.submit.slurm import Slurm, job_script

GOLDEN = Path(__file__).with_name("golden")
FILE = ROOT / "search_spaces" / "llm.yaml"
SHAPES = {
    "one": "cluster={max_nodes: 1, cpus: 8, memory: 16}",
    "several": "cluster={max_nodes: 4, cpus: 16, gpus: 4, memory: 64}",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_script_is_as_reviewed(shape: str) -> None:
    """After a change that is meant: UPDATE_GOLDEN=1, and look at the difference."""
    loaded = load_sweep(FILE, [SHAPES[shape]])
    command = ["python", "-m", "tuning", "run", "llm.yaml", "--or-resume"]
    made = job_script(Job([loaded], SweepPaths(Path("/sweeps/llm")), command, ()))
    made = made.replace(sys.executable, "python").replace(str(Path(sys.executable).parent), "/bin")
    file = GOLDEN / f"{shape}.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(made)
    assert made == file.read_text()
    subprocess.run(["bash", "-n", file], check=True)


def test_an_id_that_is_none_reaches_no_command_line() -> None:
    with pytest.raises(UserError, match="no id of a job: --all"):
        Slurm().cancel("--all")


def test_what_a_program_says_need_not_be_utf_8() -> None:
    assert answer("printf", r"\377", needs="it") == "\ufffd"


@pytest.mark.parametrize(("codes", "expected"), [("4 4 0", 0), ("4 4 4 0", 4), ("2 0", 2)])
def test_driver_whose_ray_does_not_start_is_started_again(
    tmp_path: Path, codes: str, expected: int
) -> None:
    """The script as bash runs it, with a command that ends with one code after the other."""
    (tmp_path / "codes").write_text(codes)
    command = 'read code rest < codes; echo "$rest" > codes; exit $code'
    job = Job(
        [load_sweep(FILE, [SHAPES["one"]])], SweepPaths(tmp_path), ["bash", "-c", command], ()
    )
    done = subprocess.run(["bash", "-c", job_script(job)], cwd=tmp_path, timeout=60)
    assert done.returncode == expected


def test_job_of_a_pipeline_has_the_machines_of_its_largest_stage(tmp_path: Path) -> None:
    sweeps = [load_sweep(FILE, [shape]) for shape in SHAPES.values()]
    script = job_script(Job(sweeps, SweepPaths(tmp_path), ["true"], ()))
    assert "#SBATCH --nodes=4" in script
    assert "#SBATCH --mem=64G" in script
    Slurm().check(sweeps, ())
    with pytest.raises(UserError, match=r"llm.yaml: needs cluster\.max_nodes"):
        Slurm().check([*sweeps, load_sweep(FILE)], ())
