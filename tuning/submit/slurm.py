"""Slurm: a batch script that Slurm may run again and again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from results.own_program import module_command
from results.storage.atomic import write_atomic
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from tuning.cluster.ray_processes import RayStartError
from tuning.submit.engine import ENDS, Engine, Job, JobState, answer, ask, error_line, match_id
from tuning.submit.portable import require_clusters

_NEEDS = "run this where Slurm's programs are: on a login node"
_WARNING_S = 120
"""Seconds before the time limit at which trials begin to save."""
_PORT = 6379
_OVER = (
    *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "DEADLINE", "PREEMPTED", "REVOKED"),
    *("OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"),
)
"""States of jobs that do not run again; a preempted one that does is PENDING."""

_SCRIPT = """\
#!/bin/bash
# Runs {name}. Slurm may run this again: after a preemption, a lost node, or the time limit.
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={cpus}
#SBATCH --mem={memory}G
{gpus}#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@{warning}

# Trials save their checkpoints, and the session ends.
pause() {{
  asked=yes next=$1
  {pause} || kill -TERM $job
}}
trap 'pause' TERM                # preemption
trap 'pause requeue' USR1        # the time limit is near
trap 'pause cancel' USR2         # tune cancel

{before}for try in 1 2 3; do
  {run}
  job=$!
  while wait $job; kill -0 $job 2>/dev/null; do :; done  # a signal ends a wait
  wait $job
  code=$?
  if [ $code != {busy} ] || [ -n "$asked" ]; then break; fi  # else Ray did not start
done
trap '' TERM
if [ "$next" = requeue ] && [ $code != 0 ]; then scontrol requeue $SLURM_JOB_ID; fi
if [ "$next" = cancel ]; then scancel $SLURM_JOB_ID; fi
exit $code
"""
_SEVERAL = """\
export PATH={programs}:$PATH
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
"""
_ON_SEVERAL = """\
srun ray symmetric-run --address "$head:{port}" --min-nodes {nodes} \\
    --num-cpus {cpus} --num-gpus {num_gpus} --disable-usage-stats -- \\
    {command} --address "$head:{port}" &"""


class Slurm(Engine):
    """Slurm, by its own programs on this machine."""

    def __init__(self, place: str | None = None) -> None:
        if place:
            raise UserError("--address: has no effect on slurm; leave it out")

    def check(self, sweeps: Sequence[LoadedSweep], options: Sequence[str]) -> list[str]:
        """Its machines are those of the `cluster` sections; sbatch checks the options."""
        require_clusters(sweeps)
        return []

    def submit(self, job: Job) -> str:
        """Write the script into the sweep's folder, and hand it to sbatch."""
        write_atomic(job.paths.job_script, job_script(job).encode())
        options = [f"--{option}" for option in job.options]
        log = str(job.paths.log).replace("%", "%%")  # else a pattern
        asked = ("sbatch", "--parsable", f"--output={log}", *options, str(job.paths.job_script))
        said = answer(*asked, needs=_NEEDS)
        return said.partition(";")[0]  # the name of the cluster follows

    def state(self, job_id: str) -> JobState:
        """Its state, and why it waits."""
        asked = ("squeue", f"--jobs={_number(job_id)}", "--states=all", "-h", "-o", "%T %r")
        done = ask(*asked, needs=_NEEDS)
        if done.returncode and "Invalid job id" not in done.stderr:
            raise UserError(f"squeue: {error_line(done.stderr)}")
        word, _, reason = done.stdout.strip().partition(" ")
        if done.returncode or word in ("", *_OVER):
            return JobState.ended()
        return JobState(word.lower() + (f" ({reason})" if reason != "None" else ""))

    def cancel(self, job_id: str) -> str:
        """Signal the script, which pauses the sweep; a job that does not run yet just ends."""
        runs = self.state(job_id).words == "running"
        signal = ("--batch", "--signal=USR2") if runs else ()
        answer("scancel", *signal, _number(job_id), needs=_NEEDS)
        return ENDS


def job_script(job: Job) -> str:
    """The batch script: on one machine the command itself, on several a Ray cluster around it."""
    cluster, nodes = require_clusters(job.sweeps)
    command = shlex.join(job.command)
    before, run = "", f"{command} &"
    values = {"nodes": nodes, "cpus": cluster.cpus}
    if nodes > 1:
        before = _SEVERAL.format(programs=shlex.quote(str(Path(sys.executable).parent)))
        shape = {"port": _PORT, "num_gpus": cluster.gpus}
        run = _ON_SEVERAL.format(command=command, **shape, **values)
    return _SCRIPT.format(
        name=job.paths.name,
        memory=cluster.memory,
        gpus=f"#SBATCH --gpus-per-node={cluster.gpus}\n" if cluster.gpus else "",
        warning=_WARNING_S,
        pause=shlex.join(module_command("tuning", "pause", str(job.paths.root))),
        before=before,
        run=run,
        busy=RayStartError.exit_code,
        **values,
    )


def _number(job_id: str) -> str:
    return match_id("slurm", r"\d+", job_id)[0]
