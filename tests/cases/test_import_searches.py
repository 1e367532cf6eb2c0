"""Searches and trainings that begin when a user's file is imported are refused before that."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import UserError
from trainables.registry import resolve
from trainables.user_code.loader import load, searches_at_import
from tuning.controller.preflight.trainables import code_problems

LOOP = "def loop(config):\n    ray.train.report({})\n"
SEARCH = "import optuna\ndef search():\n    optuna.create_study().optimize(loop)\n"
REFUSED = {
    "optuna": "import optuna\nstudy = optuna.create_study()\nstudy.optimize(loop, n_trials=2)",
    "elsewhere": "study.optimize(loop, n_trials=2)",
    "tune.run": "from ray import tune\nbest = tune.run(loop)",
    "ray.tune.run": "import ray.tune\nray.tune.run(loop)",
    "Tuner": "from ray.tune import Tuner\nfor _ in range(2):\n    Tuner(loop).fit()",
    "wandb": "import wandb as w\nw.agent('id', loop)",
    "hyperopt": "from hyperopt import fmin\ntry:\n    fmin(loop)\nexcept Exception:\n    raise",
    "ours": "import tuning\nsweep = tuning.Sweep(loop)\nsweep.run()",
    "lightning": "trainer = L.Trainer()\ntrainer.fit(model, data)",
    "transformers": "trainer = transformers.Trainer(model)\ntrainer.train()",
    "condition": f"{SEARCH}if not ready:\n    search()",
    "else": f"{SEARCH}if __name__ == '__main__':\n    pass\nelse:\n    search()",
    "deep": f"{SEARCH}def outer():\n    return search()\nouter()",
    "method": f"{SEARCH}class Own:\n    def go(self):\n        search()\nOwn().go()",
    "beside": "from beside import search\nsearch()",
    "module": "import runs",
    "arguments": "import argparse\nargs = argparse.ArgumentParser().parse_args()",
    "main": "def main():\n    ...\nmain()",
}
ALLOWED = {
    "guarded": f"{SEARCH}if __name__ == '__main__':\n    search()\n    main()",
    "defined": f"{SEARCH}run = search",
    "guarded import": "if __name__ == '__main__':\n    import runs",
    "other": "import scipy.optimize\nscipy.optimize.minimize(f, 0)\nmodel.train()\nmodel.fit(x, y)",
    "never": f"{SEARCH}if False:\n    search()",
}


def written(folder: Path, source: str) -> str:
    (folder / "beside.py").write_text(SEARCH)
    (folder / "runs.py").write_text(f"{SEARCH}search()\n")
    script = folder / "script.py"
    script.write_text(f"{LOOP}{source}\n")
    return f"{script}:loop"


@pytest.mark.parametrize("source", REFUSED.values(), ids=REFUSED)
def test_search_at_import_is_refused(source: str, tmp_path: Path) -> None:
    name = written(tmp_path, source)
    found = code_problems(resolve(name))
    assert any("put it under if __name__ == '__main__':" in line for line in found)
    with pytest.raises(UserError, match="when a worker imports the file"):
        load(name)


@pytest.mark.parametrize("source", ALLOWED.values(), ids=ALLOWED)
def test_other_code_is_not(source: str, tmp_path: Path) -> None:
    assert searches_at_import(written(tmp_path, source)) == []
