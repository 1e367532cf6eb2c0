from pathlib import Path
from typing import Any

import pytest

from tests.trainables.local import run_python
from trainables.base import Split, Trainable
from trainables.digits.config import DigitsConfig
from trainables.digits.trainable import Digits

OPTIONAL = ("exportable", "export_hf", "examples", "initial", "digest", "recalibrate", "client")


class Bare(Trainable[DigitsConfig]):
    def evaluate(
        self, config: DigitsConfig, weights: Path, split: Split, cache: Path
    ) -> dict[str, float]:
        return {"loss": 2.0}


class Partial(Digits):
    implementation = ("trainables.digits.loop",)

    def client(self, config: DigitsConfig, cache: Path) -> Any:
        raise AssertionError


def test_offers_knows_methods_and_functions_of_implementation() -> None:
    assert [m for m in OPTIONAL if Digits().offers(m)] == list(OPTIONAL)
    assert [m for m in OPTIONAL if not Partial().offers(m)] == ["exportable", "export_hf"]
    assert [m for m in ("train", "evaluate", *OPTIONAL) if Bare().offers(m)] == ["evaluate"]


def test_offers_does_not_import_the_implementation() -> None:
    code = (
        "import sys\n"
        "from trainables.digits.trainable import Digits\n"
        "assert Digits().offers('export_hf')\n"
        "assert 'torch' not in sys.modules"
    )
    run_python("-c", code)


def test_missing_method_raises_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=r"Bare has no initial\(\)"):
        Bare().initial(DigitsConfig(), tmp_path, tmp_path)


def test_examples_default_to_one_value_and_recalibrate_to_nothing(tmp_path: Path) -> None:
    given = Bare().examples(DigitsConfig(), tmp_path, Split.TEST, tmp_path)
    assert given == {"loss": [2.0]}
    Bare().recalibrate(DigitsConfig(), tmp_path, tmp_path)
