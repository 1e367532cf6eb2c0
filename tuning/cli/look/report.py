"""`tune report`: the results of a sweep, as one HTML page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage, intact
from tuning.cli.formatting import echo
from tuning.cli.json_output import print_json
from tuning.cli.options import Json, StorageDir, sweep_names

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.records.pipeline import PipelinePaths

OptionalSweep = Annotated[
    str | None,
    typer.Argument(help="A sweep or pipeline; without: all sweeps.", autocompletion=sweep_names),
]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Where to write the page."),
]


def report(
    sweep: OptionalSweep = None,
    html: Html = None,
    json_: Json = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Write a report of a sweep: one HTML page that needs no network.

    It shows the history, curves, importance of the parameters, cost, failures, and why the winner
    won. The default place is the folder of the sweep. Of a pipeline it draws the stages, with a
    page for each train stage.

    Without a sweep: the page of all sweeps of the storage, with links to their reports.

    Example: tune report digits --html digits.html
    """
    from results.sweep_folder.sweep_folder import SweepFolder
    from tuning.pipelines.folder import find_pipeline

    if sweep is None:
        pages = [_report_storage(storage, html)]
    elif (pipeline := find_pipeline(sweep, storage)) is not None:
        pages = _report_pipeline(pipeline, html, accept_damage)
    else:
        paths = intact(SweepFolder.open(sweep, storage, writes=html is None).paths, accept_damage)
        pages = [_report_sweep(paths, html or paths.report)]
    if json_:
        return print_json({"pages": pages})
    print_pages(*pages)


def _report_storage(storage: str | None, html: Path | None) -> Path:
    from results.report.home_page import write_home
    from results.sweep_folder.folder import resolve_storage

    root = resolve_storage(storage)
    if not root.root.is_dir():
        raise UserError(f"storage {root.root}: no such folder")
    return write_page(html or root.index, lambda target: write_home(root, target))


def _report_sweep(paths: SweepPaths, target: Path) -> Path:
    from results.report.sweep_data import read_sweep_data
    from results.report.sweep_page import write_report
    from tuning.search.importance import with_importances
    from tuning.watch.sweep_metadata import with_search

    data = with_importances(with_search(read_sweep_data(paths), paths))
    return write_page(target, lambda target: write_report(paths, data, target))


def _report_pipeline(paths: PipelinePaths, html: Path | None, accept_damage: bool) -> list[Path]:
    """Write the pages of its train stages, and at last the page that links to them."""
    from results.report.pipeline_data import read_pipeline_data
    from results.report.pipeline_page import write_pipeline_report
    from results.storage.sharing import refuse_outside_links
    from results.sweep_folder.lock import current_driver
    from search_spaces.pipeline.loading import load_pipeline

    refuse_outside_links(paths.root)
    pipeline = load_pipeline(paths.spec)
    begun = [sweep for name in pipeline.sweeps if (sweep := paths.sweep(name)).is_sweep]
    pages = [_report_sweep(intact(sweep, accept_damage), sweep.report) for sweep in begun]
    data = read_pipeline_data(paths, driven=bool(current_driver(paths.lock)))
    target = html or paths.report
    return [*pages, write_page(target, lambda target: write_pipeline_report(data, target))]


def write_page(target: Path, write: Callable[[Path], None]) -> Path:
    """Write a page; returns its absolute path.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        write(target.absolute())
    except OSError as e:
        raise UserError(f"{target}: cannot be written ({e.strerror})") from e
    return target.absolute()


def print_pages(*pages: Path) -> None:
    """Say where pages are."""
    for page in pages:
        echo(f"page {page}")
