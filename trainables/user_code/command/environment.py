"""The arguments and the environment of a trial's program."""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError
from search_spaces.nested import flattened
from search_spaces.spec.command import fill, option_words
from trainables.job import TrialJob
from trainables.user_code import report_module
from trainables.user_code.command.arguments import parser_of_bools

PYTHON = ("python", "python3")
_MODULE = str(Path(report_module.__file__ or "").parent)
_OF_WORKER = re.compile(
    r"RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_RANK|GROUP_WORLD_SIZE"
    r"|MASTER_ADDR|MASTER_PORT|(ROLE|TORCHELASTIC|PET|RAY|TUNE_PARAM)_.*"
)
"""Variables of the process that starts the program: it would take them for its own."""


@dataclass(frozen=True)
class ProgramNode:
    """The part of a trial that one program runs.

    Attributes:
        rank: of this machine among those of the trial.
        nodes: machines of the trial.
        workers: ranks that this machine has.
        master_addr, master_port: where the programs of a trial meet.
    """

    rank: int
    nodes: int
    workers: int
    master_addr: str
    master_port: int

    def places(self, seed: int) -> dict[str, str]:
        """The values of `search_spaces.spec.command.PLACES`."""
        return {
            "seed": str(seed),
            "workers": str(self.workers),
            "nodes": str(self.nodes),
            "node_rank": str(self.rank),
            "master_addr": self.master_addr,
            "master_port": str(self.master_port),
        }


def arguments(command: Sequence[str], job: TrialJob, node: ProgramNode) -> list[str]:
    """The program and its arguments; `python` and `python3` are this process's own Python.

    Raises:
        UserError: a parameter has no value in this configuration.
    """
    values = flattened(job.config)
    texts = {name: as_text(value) for name, value in values.items()}
    parser = parser_of_bools(command)
    args = [word for name, value in values.items() for word in _option(name, value, parser)]
    try:
        program, *rest = fill(command, {**node.places(job.seed), **texts}, args)
    except KeyError as e:
        raise UserError(f"command: {{{e.args[0]}}} has no value in this configuration") from None
    return [sys.executable if program in PYTHON else program, *rest]


def environment(
    job: TrialJob, node: ProgramNode, temporary: Path, checkpoint: Path | None
) -> dict[str, str]:
    """The environment of the program, and the file with its parameters.

    Args:
        job: of the trial.
        node: of this program.
        temporary: folder of this attempt on this machine.
        checkpoint: the one to resume from.
    """
    parameters = temporary / "params.json"
    parameters.write_text(json.dumps(job.config, default=str, indent=1), encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if not _OF_WORKER.fullmatch(k)}
    path = [_MODULE, *filter(None, [env.get("PYTHONPATH")])]
    env |= {variable(name): as_text(value) for name, value in flattened(job.config).items()}
    env |= {f"TUNE_{name.upper()}": text for name, text in node.places(job.seed).items()}
    env |= {
        "PATH": search_path(),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(temporary),
        "TUNE_PARAMS_FILE": str(parameters),
        "TUNE_TRIAL_ID": job.trial_id,
        "TUNE_ATTEMPT": str(job.attempt),
        "TUNE_CHECKPOINT_DIR": str(checkpoint or ""),
        # torchrun reads its options from these
        "PET_NNODES": str(node.nodes),
        "PET_NODE_RANK": str(node.rank),
        "PET_NPROC_PER_NODE": str(node.workers),
        "PET_MASTER_ADDR": node.master_addr,
        "PET_MASTER_PORT": str(node.master_port),
    }
    if node.rank == 0:
        env |= {
            "TUNE_REPORTS": str(temporary / "reports.jsonl"),
            "TUNE_ANSWERS": str(temporary / "answers"),
        }
    return env


def search_path() -> str:
    """The programs of this Python's environment, which need not be activated, then PATH."""
    path = os.environ.get("PATH", os.defpath)
    return os.pathsep.join([sysconfig.get_path("scripts"), path])


def _option(name: str, value: Any, parser: str) -> list[str]:
    """What `{args}` gives for a parameter; absl and Fire take a boolean only in one word."""
    if isinstance(value, bool) and parser:
        return [f"--{name}={value if parser == 'fire' else as_text(value)}"]
    return option_words(name, as_text(value))


def as_text(value: Any) -> str:
    """A value as programs read it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def variable(name: str) -> str:
    """The environment variable of a parameter."""
    return "TUNE_PARAM_" + re.sub(r"\W", "_", name).upper()
