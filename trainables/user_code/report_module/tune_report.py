"""Reports from a program that runs as the `command` of a sweep; it is on the program's path.

    from tune_report import report, checkpoint_dir

A program that is not written in Python can call `python -m tune_report step=1 loss=0.5`. Without a
sweep around the program, `report` only returns "continue".
"""

import json
import os
import sys
import time
from typing import Any, Optional

__all__ = ["checkpoint_dir", "report"]

_WAIT_S = 0.005


def report(
    metrics: Any = None,
    *,
    step: Optional[int] = None,  # noqa: UP045 - programs may have an old Python
    checkpoint: Any = None,
    **more: Any,
) -> str:
    """Report metrics and wait for the answer. In a distributed program only rank 0 reports.

    Args:
        metrics: name to number; more of them as keyword arguments.
        step: progress, strictly increasing; default: one more than before.
        checkpoint: a folder with everything from which the program can resume. It is moved away,
            so write the next checkpoint to a new folder, or create this one again.

    Returns:
        "continue"; or "stop" or "pause", after which the program gets SIGTERM.
    """
    file, answers = os.environ.get("TUNE_REPORTS"), os.environ.get("TUNE_ANSWERS")
    if not file or not answers or os.environ.get("RANK", "0") != "0":
        return "continue"
    given = {name: _number(value) for name, value in {**(metrics or {}), **more}.items()}
    if step is not None:
        given["step"] = _number(step)
    if checkpoint is not None:
        given["checkpoint"] = os.path.abspath(checkpoint)
    line = json.dumps(given) + "\n"
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode())
        end = os.lseek(fd, 0, os.SEEK_CUR)
    finally:
        os.close(fd)
    return _wait(answers, end)


def checkpoint_dir() -> Optional[str]:  # noqa: UP045
    """Folder of the checkpoint from which to resume, to be read only; None for a fresh start."""
    return os.environ.get("TUNE_CHECKPOINT_DIR") or None


def _number(value: Any) -> Any:
    """A number of numpy, or a tensor with one element, as Python's; anything else as it is."""
    return value.item() if hasattr(value, "item") else value


def _wait(answers: str, end: int) -> str:
    while True:
        try:
            with open(answers) as file:
                lines = [line.split() for line in file if line.endswith("\n")]
        except OSError:
            lines = []
        for position, answer in lines:
            if int(position) >= end:
                return answer
        time.sleep(_WAIT_S)


def _main() -> None:
    given: Any = dict(text.split("=", 1) for text in sys.argv[1:])
    folder, step = given.pop("checkpoint", None), given.pop("step", None)
    numbers = {name: float(value) for name, value in given.items()}
    sys.stdout.write(report(numbers, step=step, checkpoint=folder) + "\n")


if __name__ == "__main__":
    _main()
