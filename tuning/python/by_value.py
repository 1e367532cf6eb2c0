"""Training code that is given as an object: by its name, or by value if no module has it.

A function of a notebook is in no file that a worker could import. It becomes a script, in which its
pickle is text. The script's name has its digest, so `sweep.yaml`, which is signed, fixes the code.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import sys
import textwrap
from base64 import b64encode
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError
from search_spaces.nested import show

_MAX_BYTES = 16 * 1024**2

_SCRIPT = '''"""`{name}` of a notebook or a main script, by value: stored by `tuning.Sweep`.

It is a pickle of Python {version}, and runs under no other. To edit it, or to reproduce the sweep
elsewhere, write the function to a file and start a new sweep.
"""

import sys
from base64 import b64decode
from typing import TYPE_CHECKING

import cloudpickle

if sys.version_info[:2] != {info}:
    raise ImportError(
        "{name} is stored by value, by Python {version}: use that version, or write the function "
        "to a file and start a new sweep"
    )
sys.path += [folder for folder in {folders} if folder not in sys.path]

{body}'''

_FUNCTION = """
if TYPE_CHECKING:  # for readers; what runs is below, with the values that it refers to
{source}
else:
    {name} = cloudpickle.loads(b64decode({data!r}))
    {name}.__module__ = __name__
"""

_CLASS = """
if TYPE_CHECKING:  # for readers; what runs is below, with the values that it refers to
{source}

class {name}(cloudpickle.loads(b64decode({data!r}))):
    pass
"""


def name_of(code: Any) -> str | None:
    """`script.py:function` or `package.module:function` of an object; None if no module has it.

    A main script counts as none: a worker that imports it would start the sweep again.

    Raises:
        UserError: it is neither a function with a name nor a class.
    """
    module = inspect.getmodule(code)
    if getattr(code, "__name__", "") == "<lambda>":
        raise UserError("Sweep(trainable): a lambda has no name; write a function with def")
    if not (inspect.isfunction(code) or inspect.isclass(code)):
        raise UserError(
            f"Sweep(trainable): must be a name, a function or a class, got {show(code)}; "
            "wrap a callable object in a function"
        )
    if module is None or module.__name__ == "__main__":
        return None
    name: str = code.__name__
    if vars(module).get(name) is not code:  # of a function, or replaced
        return None
    package, _, _ = module.__name__.rpartition(".")
    where = module.__name__ if package else getattr(module, "__file__", None)
    return f"{where}:{name}" if where else None


def store(code: Any, folder: Path) -> Path:
    """Write a function or class into a script of its own.

    Returns:
        The script; its name ends in its SHA-256.

    Raises:
        UserError: it cannot be pickled, or holds too much data.
    """
    data, source = b64encode(_pickled(code)).decode(), _source(code)
    body = (_CLASS if inspect.isclass(code) else _FUNCTION).format(
        name=code.__name__, data=data, source=source
    )
    text = _SCRIPT.format(
        name=code.__name__,
        version=f"{sys.version_info[0]}.{sys.version_info[1]}",
        info=sys.version_info[:2],
        folders=[folder for folder in dict.fromkeys([os.getcwd(), *sys.path]) if _is_own(folder)],
        body=body.lstrip(),
    )
    digest = hashlib.sha256(text.encode()).hexdigest()
    script = folder / f"{code.__name__}-{digest}.py"
    script.write_text(text)
    return script


def _is_own(folder: str) -> bool:
    """Whether modules in a folder are the user's, and not installed ones."""
    return (
        bool(folder)
        and not Path(folder).is_relative_to(sys.base_prefix)
        and not (Path(folder).is_relative_to(sys.prefix))
    )


def _pickled(code: Any) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(code)
    except Exception as e:
        raise UserError(
            f"Sweep(trainable): {code.__name__} cannot be stored by value: {e}; let it open files, "
            "locks and connections itself, or write it to a file"
        ) from e
    if len(data) > _MAX_BYTES:
        raise UserError(
            f"Sweep(trainable): {code.__name__} refers to {len(data) // 1024**2} MiB of data, "
            f"which would be stored with it (at most {_MAX_BYTES // 1024**2}); let it read them"
        )
    return data


def _source(code: Any) -> str:
    """The text of a function or class, after the imports that it needs."""
    try:
        source = textwrap.dedent(inspect.getsource(code))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):  # typed into a plain interpreter, or not dedented
        source = f"{code.__name__}: object"
        tree = ast.parse(source)
    return textwrap.indent("\n".join([*_imports(code, tree), source.rstrip()]), "    ")


def _imports(code: Any, tree: ast.Module) -> list[str]:
    """Imports of what the text names: by them the code is known as one for Ray Tune or Ray Train.

    What cannot be imported, such as another function of the notebook, is only in the pickle.
    """
    own = vars(sys.modules[code.__module__]) if inspect.isclass(code) else code.__globals__
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    lines = []
    for name in sorted(names & own.keys()):
        value = own[name]
        known, module = getattr(value, "__name__", ""), getattr(value, "__module__", "__main__")
        if inspect.ismodule(value):
            lines.append(f"import {known} as {name}")
        elif getattr(sys.modules.get(module), known, None) is value and module != "__main__":
            lines.append(f"from {module} import {known} as {name}")
    return lines
