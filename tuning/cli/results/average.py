"""`tune average`: what is made of the weights of several models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuning.cli.options import StorageDir, Sweep
from tuning.evaluation.load_model import cache_of, config_of, record_of, trainable_of

if TYPE_CHECKING:
    from results.averaging.soup import Candidate, Soup, Start
    from results.paths import SweepPaths
    from search_spaces.spec.sweep import SweepSpec
    from trainables.base import Trainable, TrainableConfig

_DELIVERY_S = 20.0
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?")
_FACTOR = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def average(
    sweep: Sweep,
    top: Annotated[int, typer.Option(min=2, help="The best trials, so many of them.")] = 5,
    trials: Annotated[
        str | None, typer.Option(help="These trials instead: t0003,t0007.", show_default=False)
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            min=2, help="The last checkpoints of one --trial instead (LAWA).", show_default=False
        ),
    ] = None,
    trial: Annotated[
        str | None, typer.Option(help="Trial of --last; default: the winner.", show_default=False)
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(help="The clients of this federated trial instead.", show_default=False),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="greedy keeps only what does no harm; uniform, weighted, ema, slerp, median, "
            "trimmed_mean, task_arithmetic, ties, dare_linear and dare_ties take all.",
            autocompletion=lambda: _methods(),
        ),
    ] = "greedy",
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Option of the method.", show_default=False
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="For weighted and slerp: metric, examples or numbers: 2,1,1.", show_default=False
        ),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Model from which the task vectors go; default: the trials' initial weights.",
            show_default=False,
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Format of the floats; default: as they are.", show_default=False),
    ] = None,
    max_memory: Annotated[str, typer.Option(help="Held at once while averaging.")] = "64MB",
    max_shard_size: Annotated[
        str | None,
        typer.Option(help="Of one file, as 5GB; default: one file.", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the soup; default: from the method.", show_default=False)
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also models that did not start from the same weights.")
    ] = False,
    storage: StorageDir = None,
) -> None:
    """Average models into a soup, judged beside the best of them on data the search never saw.

    Example: tune average llm --top 5
    """
    from results.averaging import make_method
    from results.averaging.soup import Recipe, make_soup
    from results.averaging.soup import weights as weights_of
    from results.records.spec_file import read_spec
    from search_spaces.errors import UserError
    from tuning.controller.sweep_dir.folder import find, handle
    from tuning.evaluation.test_split import compare_with_single

    paths = find(sweep, storage)
    spec = read_spec(paths)
    trainable = trainable_of(spec, "average")
    made = make_method(method, _pairs(options or []))
    if base is not None and not made.needs_base:
        raise UserError(f"--base: method {method} has no task vectors; task_arithmetic, ties, … do")
    given = [k for k, v in {"trials": trials, "last": last, "clients": clients}.items() if v]
    if len(given) > 1 or (trial and not last):
        raise UserError("one of --trials, --last (of --trial) and --clients says what is averaged")
    picked, label = _picked(paths, spec, top, trials, last, trial, clients)
    if len(picked) < 2:
        raise UserError(
            f"{paths.name}: only {picked[0].label} has a finite '{spec.metric}' and a whole "
            f"checkpoint, and an average takes two; export it: tune export {handle(paths)}"
        )
    config = config_of(spec, trainable, record_of(paths, picked[0].trial_id))
    cache = cache_of(paths)
    recipe = Recipe(
        method=made,
        weights=weights_of(picked, weights, spec.metric, spec.mode) if weights else None,
        start=_begun(trainable, config, cache, base, picked[0])
        if base is not None
        else _initial(trainable, config, cache),
        dtype=dtype,
        max_memory=_bytes("--max-memory", max_memory),
        max_shard=_bytes("--max-shard-size", max_shard_size) if max_shard_size else None,
        force=force,
    )
    called = name or f"{method}-{label}"
    if Path(called).name != called or called.startswith("."):
        raise UserError(f"--name: a plain name, not '{called}'")
    judge = compare_with_single(trainable, config, spec.metric, spec.mode, cache)
    soup = make_soup(paths, called, picked, judge, recipe)
    _tell(soup, spec, handle(paths), paths.soup(called))
    _track(paths, spec)


def _methods() -> list[str]:
    from results.averaging import METHODS

    return list(METHODS)


def _picked(
    paths: SweepPaths,
    spec: SweepSpec,
    top: int,
    trials: str | None,
    last: int | None,
    trial: str | None,
    clients: str | None,
) -> tuple[list[Candidate], str]:
    """The candidates, and what to call them."""
    from results.analysis.selection import decide
    from results.averaging import soup
    from tuning.controller.sweep_dir.folder import find_trial

    if trials:
        ids = [word.strip() for word in trials.split(",") if word.strip()]
        return soup.named(paths, spec.metric, spec.mode, ids), "-".join(ids)
    if last:
        chosen = trial or decide(paths, spec).line.record.id
        find_trial(paths, chosen)
        return soup.checkpoints(paths, spec.metric, chosen, last), f"{chosen}-last-{last}"
    if clients:
        find_trial(paths, clients)
        return soup.clients(paths, clients), f"{clients}-clients"
    picked = soup.best(paths, spec.metric, spec.mode, top)
    winner = decide(paths, spec).line.record.id
    picked.sort(key=lambda one: one.trial_id != winner)  # one that was confirmed comes first
    return picked, str(len(picked))


def _initial(trainable: Trainable[Any], config: TrainableConfig, cache: Path) -> Start:
    """The trials' weights of step 0, made again."""
    from results.averaging.soup.candidates import WEIGHTS
    from search_spaces.errors import UserError

    def start(folder: Path) -> tuple[Path, str | None]:
        try:
            return folder / WEIGHTS, trainable.initial(config, folder, cache)
        except NotImplementedError as e:
            raise UserError(str(e)) from e

    return start


def _begun(
    trainable: Trainable[Any], config: TrainableConfig, cache: Path, base: Path, model: Candidate
) -> Start:
    """A folder's weights, as they lie there.

    Raises:
        UserError: there are none, or not of such a model.
    """
    from results.checkpoints.tensor_layout import read_layout, unlike_start, weights_file
    from search_spaces.errors import UserError

    weights = weights_file(base)
    if not weights.is_file():
        raise UserError(f"--base {base}: no {weights.name} in it (other formats are not read)")
    if reason := unlike_start(read_layout(model.weights), read_layout(weights)):
        raise UserError(f"--base {base}: {model.label} cannot have started from it: {reason}")

    def start(_: Path) -> tuple[Path, str | None]:
        try:
            return weights, trainable.digest(config, base, cache)
        except NotImplementedError:
            return weights, None

    return start


def _pairs(options: list[str]) -> dict[str, str]:
    from search_spaces.errors import UserError

    pairs = dict(option.partition("=")[::2] for option in options)
    if bad := [option for option in options if "=" not in option]:
        raise UserError(f"--set {bad[0]}: give it as KEY=VALUE, like --set density=0.5")
    return pairs


def _bytes(option: str, text: str) -> int:
    from search_spaces.errors import UserError

    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UserError(f"{option}: a size like 64MB or 5GB, not '{text}'")
    return int(float(found[1]) * _FACTOR[found[2]])


def _tell(soup: Soup, spec: SweepSpec, sweep: str, folder: Path) -> None:
    from tuning.cli.formatting import number

    typer.echo(f"{spec.metric} on the test split, which the search did not see ({spec.mode}):")
    for name in dict.fromkeys(("single", "uniform", "greedy", soup.method)):
        interval = soup.scores[name].interval
        spread = f"  [{number(interval[0])}, {number(interval[1])}]" if interval else ""
        typer.echo(f"  {name:15} {number(soup.scores[name].mean)}{spread}")
    if soup.rank_loss:
        typer.echo(f"the LoRA factors' rank is too low for {soup.rank_loss:.1%} of the mean update")
    typer.echo(f"averaged {len(soup.members)} of {len(soup.candidates)}: {', '.join(soup.members)}")
    if soup.promoted:
        typer.echo(f"better than {soup.single} alone: tune export {sweep} --soup {folder.name}")
    else:
        typer.echo(f"{_reason(soup)}: tune export {sweep}")
    typer.echo(f"soup {folder}")


def _track(paths: SweepPaths, spec: SweepSpec) -> None:
    """A run of its own in MLflow; now, or else when the sweep's others are delivered."""
    from search_spaces.errors import UserError
    from tuning.controller.sweep_dir.folder import handle
    from tuning.controller.tracking.observer import deliver

    if spec.tracking.name == "none":
        return
    try:
        left = deliver(spec, paths, _DELIVERY_S)
    except UserError as e:
        left = str(e)
    if left:
        typer.echo(f"not in MLflow yet ({left}); later: tune sync {handle(paths)}")


def _reason(soup: Soup) -> str:
    from tuning.cli.formatting import number

    if soup.gain.error is None:
        return (
            f"not promoted: the trainable has no examples() to tell whether {soup.method} is "
            f"better than {soup.single} alone"
        )
    if soup.gain.mean <= 0:
        return f"no better than {soup.single} alone"
    gained, error = number(soup.gain.mean), number(soup.gain.error)
    return f"not surely better than {soup.single} alone (by {gained}, standard error {error})"
