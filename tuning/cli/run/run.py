"""`tune run` and `tune resume`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from tuning.cli.options import Address, File, Insecure, Set, StorageDir, Sweep

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from tuning.controller.session import Interrupt
    from tuning.search.auto_searcher import AutoChoice


def run(
    file: File,
    set_: Set = [],  # noqa: B006 - typer reads the default, nobody changes it
    name: Annotated[
        str | None, typer.Option(metavar="N", help="Name of the sweep; default: the file's.")
    ] = None,
    storage: StorageDir = None,
    address: Address = None,
    insecure: Insecure = False,
) -> None:
    """Run the sweep of a file, from its search space to a winner.

    Example: tune run search_spaces/llm.yaml --set budget.trials=6
    """
    from search_spaces.errors import UserError
    from search_spaces.loading.sweep_file import load_sweep
    from tuning.controller.preflight import preflight
    from tuning.controller.resources.cluster import check_cluster_auth
    from tuning.controller.sweep_dir.folder import create_sweep, discard_empty_sweep
    from tuning.controller.sweep_dir.warm_start import source_sweeps
    from tuning.search.auto_scheduler import choose_scheduler

    check_cluster_auth(address, insecure)
    loaded = load_sweep(file, set_)
    preflight(loaded)
    source_sweeps(loaded.spec, storage or loaded.spec.storage)
    paths = create_sweep(loaded, name, storage)
    try:
        _drive(paths, address, choose_scheduler(loaded.spec))
    except UserError:
        discard_empty_sweep(paths)
        raise


def resume(
    sweep: Sweep,
    trials: Annotated[
        str | None,
        typer.Option(metavar="N", help="Trials in all, or +20 for 20 more.", show_default=False),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="T", help="Time in all, or +2h for two hours more."),
    ] = None,
    set_: Set = [],  # noqa: B006 - typer reads the default, nobody changes it
    storage: StorageDir = None,
    address: Address = None,
    insecure: Insecure = False,
) -> None:
    """Go on with a sweep: unfinished trials continue from their newest checkpoint.

    A sweep that is finished goes on with a larger budget; what else is --set changes it for good.
    One that is mirrored (checkpoint.mirror) goes on elsewhere: tune resume s3://bucket/prefix/llm

    Example: tune resume llm --trials +20 --set 'space.beta2={uniform: [0.9, 0.999]}'
    """
    from results.records.spec_file import read_spec
    from tuning.controller.resources.cluster import check_cluster_auth
    from tuning.controller.sweep_dir.amend import amend_sweep
    from tuning.controller.sweep_dir.folder import find_sweep
    from tuning.controller.sweep_dir.restore import restore_sweep
    from tuning.search.auto_scheduler import choose_scheduler

    check_cluster_auth(address, insecure)
    paths = restore_sweep(sweep, storage) if "://" in sweep else find_sweep(sweep, storage)
    if changed := amend_sweep(paths, trials, time, set_):
        typer.echo(str(changed))
    _drive(paths, address, choose_scheduler(read_spec(paths)))


def _drive(paths: SweepPaths, address: str | None, scheduler: AutoChoice) -> None:
    from results.records.spec_file import read_spec
    from tuning.cli.formatting import make_console
    from tuning.cli.run.live_view import make_view
    from tuning.cli.summary import summarise
    from tuning.controller.session import Interrupt, run_session
    from tuning.search.auto_searcher import choose

    spec = read_spec(paths)
    console = make_console()
    console.print(f"sweep {spec.name} in {paths.root}", soft_wrap=True)
    console.print(f"search {choose(spec)}", soft_wrap=True)
    console.print(f"scheduler {scheduler}", soft_wrap=True)
    view, stop = make_view(console), Interrupt()
    with _interruptible(stop):
        outcome = run_session(paths, spec, address=address, observers=[view], interrupt=stop)
    summarise(outcome, console)
    if outcome.interrupted:
        raise typer.Exit(1 if outcome.gave_up else 130)


_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def _interruptible(stop: Interrupt) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops cleanly, the second at once."""

    def handle(signum: int, frame: FrameType | None) -> None:
        if stop.asked:  # what is on disk is whole at any moment, so nothing has to be put in order
            sys.stderr.write(_SHOW_CURSOR * sys.stderr.isatty())
            os._exit(128 + signum)
        sys.stderr.write("\nstopping; checkpoints are kept. Once more to stop at once.\n")
        stop()

    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
