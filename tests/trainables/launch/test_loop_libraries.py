"""A process that waits for its trial imports libraries, and runs nothing of the user's."""

import ast
import subprocess
import sys
from pathlib import Path

from trainables.launch.ray_train_loops.libraries import library_imports

SCRIPT = """
import helper
from . import sibling
from sub.deep import thing
import colorsys as colors
try:
    import wave
except ImportError:
    pass
if False:
    import never
open("ran", "w").close()

def main():
    import never

def loop(config):
    from xml.sax import handler
    with open("ran", "w"):
        import sunau_or_not
"""


def test_imports_are_those_of_libraries_at_the_top_and_in_the_loop(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("import tomllib\nimport sub.deep\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.py").write_text("thing = 1\nimport shelve\n")
    found = {ast.unparse(s) for s in library_imports(f"{tmp_path}/script.py:loop")}
    assert found == {
        "import colorsys as colors",
        "import wave",
        "from xml.sax import handler",
        "import sunau_or_not",
        "import tomllib",
        "import shelve",
    }


def test_script_is_not_run_and_failing_imports_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("import tomllib\n")
    code = (
        "import sys; from trainables.launch.ray_train_loops.libraries import import_libraries;"
        f"import_libraries({f'{tmp_path}/script.py:loop'!r});"
        "assert {'colorsys', 'wave', 'xml.sax.handler', 'tomllib'} <= set(sys.modules);"
        "assert not {'helper', 'never'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert not (tmp_path / "ran").exists()
