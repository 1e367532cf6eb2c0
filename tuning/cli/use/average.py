"""`tune average`: average the weights of several models, and compare the result with the best."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import local_path, number, tell
from tuning.cli.options import StorageDir, Sweep, Trust, trusted_sweep
from tuning.cli.use.model import track

if TYPE_CHECKING:
    from results.averaging.soup.scoring import Soup
    from search_spaces.spec.sweep import SweepSpec


def _methods() -> list[str]:
    from results.averaging import METHODS

    return list(METHODS)


Top = Annotated[
    int | None, typer.Option(min=2, help="Number of best trials to average; default: 5.")
]
Trials = Annotated[str | None, typer.Option(help="These trials instead: t0003,t0007.")]
Last = Annotated[
    int | None,
    typer.Option(min=2, help="The last checkpoints of one --trial instead (LAWA)."),
]
Trial = Annotated[str | None, typer.Option(help="Trial of --last; default: the winner.")]
Clients = Annotated[
    str | None,
    typer.Option(help="The clients of this federated trial instead."),
]
MethodName = Annotated[
    str,
    typer.Option(
        "--method",
        help="greedy keeps only models that do not make the score worse; uniform, weighted, ema, "
        "slerp, median, trimmed_mean, task_arithmetic, ties, dare_linear and dare_ties take all.",
        autocompletion=_methods,
    ),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Option of the method."),
]
Weights = Annotated[
    str | None,
    typer.Option(help="For weighted and slerp: metric, examples or numbers: 2,1,1."),
]
Base = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Model from which the task vectors start; default: the trials' initial weights.",
    ),
]
Dtype = Annotated[
    Literal["float64", "float32", "float16", "bfloat16"] | None,
    typer.Option(help="Format of the floats; default: unchanged."),
]
MaxMemory = Annotated[str, typer.Option(help="Largest amount to hold in memory at once.")]
MaxShardSize = Annotated[
    str | None,
    typer.Option(help="Largest size of a file, such as 5GB; default: one file."),
]
Name = Annotated[
    str | None,
    typer.Option(help="Name of the soup; default: from the method."),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Also average models that started from different weights."),
]


def average(
    sweep: Sweep,
    top: Top = None,
    trials: Trials = None,
    last: Last = None,
    trial: Trial = None,
    clients: Clients = None,
    method: MethodName = "greedy",
    options: Options = None,
    weights: Weights = None,
    base: Base = None,
    dtype: Dtype = None,
    max_memory: MaxMemory = "64MB",
    max_shard_size: MaxShardSize = None,
    name: Name = None,
    force: Force = False,
    trust: Trust = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Average models into a soup, and compare it with the best.

    They are compared on data that the search did not see.

    Example: tune average llm --top 5
    """
    from results.records.spec_file import read_spec
    from results.sweep_folder.folder import sweep_argument
    from tuning.evaluation.average import AverageOptions, ModelChoice, average_models, method_of

    paths = intact(trusted_sweep(sweep, storage, trust), accept_damage)
    made = method_of(method, options or [], base)
    choice = ModelChoice(top, trials, last, trial, clients)
    settings = AverageOptions(made, weights, base, dtype, max_memory, max_shard_size, force)
    spec = read_spec(paths)
    soup, folder = average_models(paths, spec, choice, settings, name, partial(tell, err=True))
    _print_soup(soup, spec, sweep_argument(paths), folder)
    track(paths, spec)


def _print_soup(soup: Soup, spec: SweepSpec, sweep: str, folder: Path) -> None:
    tell(f"{spec.metric} on the test split, which the search did not see ({spec.mode}):")
    for name in dict.fromkeys(("single", "uniform", "greedy", soup.method)):
        interval = soup.scores[name].interval
        spread = f"  [{number(interval[0])}, {number(interval[1])}]" if interval else ""
        tell(f"  {name:15} {number(soup.scores[name].mean)}{spread}")
    if soup.rank_loss:
        tell(f"the LoRA factors' rank is too low for {soup.rank_loss:.1%} of the mean update")
    tell(f"averaged {len(soup.members)} of {len(soup.candidates)}: {', '.join(soup.members)}")
    model = f" --soup {folder.name}" if soup.promoted else ""
    tell(f"{_outcome(soup)}: tune export {sweep}{model}")
    tell(f"soup {local_path(folder)}")


def _outcome(soup: Soup) -> str:
    """Whether the soup is better than the best model alone, with the difference of the two."""
    gain = soup.gain
    if gain.interval is None:
        return (
            f"not promoted: the trainable has no examples(), so it is unknown whether "
            f"{soup.method} is better than {soup.single} alone"
        )
    if soup.members == (soup.single,) and gain.error == 0:
        return f"no better than {soup.single} alone, which it is"
    words = "better" if soup.promoted else "not significantly better"
    if gain.mean <= 0:
        words = "no better"
    low, high = map(number, gain.interval)
    paired = f"paired difference {number(gain.mean)}, 95 % interval [{low}, {high}]"
    return f"{words} than {soup.single} alone ({paired})"
