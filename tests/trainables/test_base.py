from pathlib import Path
from typing import Any

import pytest

from trainables.base import Split, Trainable
from trainables.digits.config import Digits, DigitsConfig

OPTIONAL = ("exportable", "export_hf", "examples", "initial", "digest", "recalibrate", "client")


class Bare(Trainable[DigitsConfig]):
    def evaluate(
        self, config: DigitsConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, float]:
        return {"loss": 2.0}


class Clients(Trainable[DigitsConfig]):
    def client(self, config: DigitsConfig, cache: Path) -> Any:
        raise AssertionError


def test_offers_knows_own_methods() -> None:
    assert [m for m in OPTIONAL if Digits().offers(m)] == list(OPTIONAL)
    assert [m for m in ("train", *OPTIONAL) if Clients().offers(m)] == ["client"]
    assert [m for m in ("train", "evaluate", *OPTIONAL) if Bare().offers(m)] == ["evaluate"]


def test_optional_methods_have_defaults_or_are_named(tmp_path: Path) -> None:
    config, bare = DigitsConfig(), Bare()
    assert bare.examples(config, tmp_path, Split.TEST, tmp_path) == {"loss": [2.0]}
    bare.recalibrate(config, tmp_path, tmp_path)
    with pytest.raises(NotImplementedError, match=r"Bare has no initial\(\)"):
        bare.initial(config, tmp_path, tmp_path)
