import sys
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a script, a module that it imports, and a package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_helper.py").write_text("FACTOR = 3\n")
    (tmp_path / "train.py").write_text(
        "from my_helper import FACTOR\n"
        "def product(config):\n    return FACTOR * config['x']\n"
        "def train_loop(config):\n    product(config)\n"
        "def other(config):\n    pass\n"
        "LIMIT = 1\n"
        "async def later(config):\n    pass\n"
    )
    (tmp_path / "loud.py").write_text("raise RuntimeError('ran')\ndef loop(config):\n    pass\n")
    (tmp_path / "broken.py").write_text("def loop(:\n")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("raise RuntimeError('ran')\n")
    (tmp_path / "my_package" / "loops.py").write_text("def loop(config):\n    pass\n")
    return tmp_path
