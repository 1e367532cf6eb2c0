"""A secret in the name of a metric, parameter or file is struck out, as one in a text is."""

from pathlib import Path

import pytest

from results.records.trial import read_reports
from results.tracking.mlflow.client import mlflow_name
from search_spaces.redaction import redacted
from tests.trainables.checkpointing.test_saver import WatchedTrial
from trainables.user_code.metrics import flat_numbers

SECRET = "canary-91b7e2"


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)


def test_reports_have_no_secret_in_names(tmp_path: Path) -> None:
    trial = WatchedTrial(tmp_path)
    worker = trial.start()
    worker.report(step=1, metrics={f"loss/{SECRET}": 1.0, "loss": 2.0})
    worker.close()
    assert read_reports(trial.paths)[0].metrics == {"loss/***": 1.0, "loss": 2.0}
    assert SECRET not in trial.paths.reports.read_text()


def test_numbers_of_user_code_have_no_secret_in_names() -> None:
    assert flat_numbers({SECRET: {"loss": 1.0}}, "loss") == {"***/loss": 1.0}


def test_mlflow_gets_no_secret_in_names() -> None:
    assert SECRET not in mlflow_name(f"p/{SECRET}.json")
    assert mlflow_name(f"p/{SECRET}.json") != mlflow_name(f"q/{SECRET}.json")


def test_redacted_data_has_no_secret_in_names() -> None:
    assert redacted({SECRET: {SECRET: 1}, "a": [{SECRET: "b"}]}) == {
        "***": {"***": 1},
        "a": [{"***": "b"}],
    }
