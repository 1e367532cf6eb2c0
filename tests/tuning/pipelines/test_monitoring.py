"""Metrics of a pipeline: each stage serves them at the port of the whole, or at a free one."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from results.records.pipeline import PipelinePaths
from results.records.spec_file import read_spec
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import freeze, load_pipeline
from tests.tuning.pipelines import small
from tests.tuning.pipelines.small import UNTRACKED
from tests.tuning.trained import train_all
from tuning import api
from tuning.controller.session import open_sweep
from tuning.controller.sweep import SweepController
from tuning.controller.tracking.monitoring import exporters
from tuning.pipelines.keys import stage_keys
from tuning.pipelines.run import resume_pipeline, run_pipeline
from tuning.pipelines.selection import StageSelection


def test_the_section_is_that_of_every_stage_without_its_own(tmp_path: Path) -> None:
    file = small.write(tmp_path)
    own = load_pipeline(file, ["monitoring.port=9108", "sft.monitoring.port=9109"])
    ports = {name: one.spec.monitoring.port for name, one in own.sweeps.items()}
    assert ports == {"pretrain": 9108, "later": 9108, "sft": 9109}
    cache = tmp_path / "cache"
    assert stage_keys(own, cache) == stage_keys(load_pipeline(file), cache)  # nothing runs again
    (tmp_path / "frozen.yaml").write_text(freeze(own))
    assert load_pipeline(tmp_path / "frozen.yaml").sweeps["later"].spec.monitoring.port == 9108
    with pytest.raises(UserError, match=r"monitoring.*is reached from other machines"):
        load_pipeline(file, ["monitoring.port=1", "monitoring.host=0.0.0.0"])


class Scraper:
    """Reads the metrics of each session of a stage; the first one ends before its first trial."""

    def __init__(self, targets: Path) -> None:
        self._targets = targets
        self.ports: list[int] = []
        self.pages: list[str] = []

    def drive(self, session: Any) -> SweepController:
        keywords = {k: v for k, v in session.keywords.items() if k != "address"}
        if session.func is api.resume:
            paths, _ = api.amend(*session.args, **keywords)
        else:
            paths = api.create(*session.args, **keywords)
        spec = read_spec(paths)
        with exporters(spec, paths) as monitors, open_sweep(paths, spec, monitors) as run:
            self._scrape(self._targets / f"small.{paths.name}.json")
            if len(self.ports) == 1:
                raise KeyboardInterrupt
            train_all(run)
        return run

    def _scrape(self, file: Path) -> None:
        deadline = time.monotonic() + 20
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        (entry,) = json.loads(file.read_text())
        (address,) = entry["targets"]
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            self.pages.append(answer.read().decode())
        self.ports.append(int(address.rpartition(":")[2]))


def test_a_stage_serves_metrics_at_a_free_port_if_another_has_its_own(tmp_path: Path) -> None:
    text = UNTRACKED.replace('keep_if: "keep.py:keep"', "seed: 1").replace(
        "{trials: 2}", "{trials: 1}"
    )
    file, storage = small.write(tmp_path, text), tmp_path / "sweeps"
    scraper, selection = Scraper(storage / ".monitoring"), StageSelection(until="pretrain")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(KeyboardInterrupt):
            run_pipeline(
                file,
                storage=str(storage),
                overrides=[f"monitoring.port={port}"],
                selection=selection,
                run_session=scraper.drive,
            )
    assert scraper.ports[0] != port
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        later = free.getsockname()[1]
    resume_pipeline(  # tune resume --metrics-port
        PipelinePaths(storage / "small"),
        overrides=[f"monitoring.port={later}"],
        selection=selection,
        run_session=scraper.drive,
    )
    assert scraper.ports[1] == later
    assert all('sweep="pretrain"' in page for page in scraper.pages)
    assert not [*(storage / ".monitoring").iterdir()]  # its driver has ended
