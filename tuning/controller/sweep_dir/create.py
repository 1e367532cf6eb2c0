"""Creates the folders of new sweeps, and finds those that a file has begun already."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from results.paths import Storage, SweepPaths
from results.records.spec_file import read_spec
from results.storage.atomic import then_again, write_atomic
from results.storage.object_store import open_object_store
from results.storage.probe import check_storage
from results.storage.sharing import use_modes_of
from results.sweep_folder.copies.mirror import RECORDS
from results.sweep_folder.folder import SweepState, sweep_argument, this_person, write_state
from results.sweep_folder.identity import identity, sign, user_key
from results.sweep_folder.lock import current_driver
from search_spaces.checksum import add_yaml_checksum
from search_spaces.errors import UserError
from search_spaces.loading.explain import rule
from search_spaces.loading.sweep_file import LoadedSweep, dump_sweep
from search_spaces.nested import show
from search_spaces.spec.env_vars import expand_now
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import resolve
from trainables.user_code.loader import canonical
from tuning.controller.preflight.relative_paths import with_absolute_fixed
from tuning.search.auto import auto_choice_comment, with_scheduler

_OWN_KEYS = ("name", "named", "user_code")
"""A folder has its own name, and its own copies of code."""


def create_sweep(loaded: LoadedSweep, name: str | None, storage: str | None) -> SweepPaths:
    """Create the folder of a new sweep, and write its resolved spec file.

    Args:
        name: of the folder; must be free. None: the file's name, with a number if it is taken.
        storage: the folder of sweeps; None: the file's.

    Raises:
        UserError: the name is taken or invalid, or the storage cannot hold a sweep.
    """
    user_key()  # raises before there is a folder
    root = Storage(Path(storage or loaded.spec.storage).expanduser().resolve())
    use_modes_of(root.root)
    base = loaded.spec.name if name is None else validate_name(name, "--name")
    check_storage(root.root)
    candidates = [base] if name else [base, *(f"{base}-{i}" for i in range(2, 10_000))]
    for candidate in candidates:
        paths = root.sweep(candidate)
        if _make_folder(paths.root):
            with discarded_on_error(paths):
                _write_new(paths, loaded)
            return paths
    raise UserError(
        f"--name {base}: {root.sweep(base).root} exists; "
        f"continue it (tune resume {sweep_argument(root.sweep(base))}), or choose another name"
    )


def _write_new(paths: SweepPaths, loaded: LoadedSweep) -> None:
    """Write the code, the state and the resolved spec file, without which there is no sweep."""
    named = frozen_spec(loaded).model_copy(update={"name": paths.root.name})
    named = _with_code(named, paths, loaded.code)
    header = f"# frozen by `tune run {loaded.path}`\n"
    header += "".join(f"# --set {o}\n" for o in loaded.overrides)
    header += f"{note}\n" if (note := auto_choice_comment(named)) else ""
    text = add_yaml_checksum(header + dump_sweep(with_scheduler(named))).encode()
    key = uuid.uuid4().hex
    signed = (sign(identity(key, text)),)
    state = SweepState(key, (), (), signed=signed, by=this_person(), folder=str(paths.root))
    write_state(paths, state)
    write_atomic(paths.spec, text)


def validate_name(name: str, option: str) -> str:
    """The name of a sweep, as an option or argument of the command line gives it.

    Raises:
        UserError: it has characters that a name cannot have.
    """
    field = SweepSpec.model_fields["name"]
    try:
        return TypeAdapter[str](Annotated[str, field]).validate_python(name)
    except ValidationError as e:
        schema = SweepSpec.model_json_schema()
        expected = rule(schema["properties"]["name"], schema)
        raise UserError(f"{option}: must be {expected}, got {show(name)}") from e


def _make_folder(folder: Path) -> bool:
    """Create a folder; False if it exists."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    except OSError as e:
        raise UserError(
            f"storage {folder.parent}: cannot create a sweep folder there ({e.strerror}); "
            "choose another with --storage DIR"
        ) from e
    return True


def find_existing(loaded: LoadedSweep, name: str | None, storage: str | None) -> str | None:
    """Where `tune resume` finds the sweep of a file.

    Args:
        name, storage: as for `create_sweep`; a sweep with a number behind its name is another one.

    Returns:
        Its folder; its address in object storage, if only that is left; None: it has not begun.

    Raises:
        UserError: the object storage cannot be reached.
    """
    name, mirror = name or loaded.spec.name, loaded.spec.checkpoint.mirror
    root = Path(storage or loaded.spec.storage).expanduser().resolve()
    if (paths := Storage(root).sweep(name)).is_sweep:
        return str(paths.root)
    if mirror is None:
        return None
    plain, mark, options = expand_now("checkpoint.mirror", mirror).partition("?")
    address = f"{plain.rstrip('/')}/{name}{mark}{options}"
    objects = open_object_store(address)
    with objects.explained():
        return address if "sweep.yaml" in objects.sizes(RECORDS) else None


def changed_keys(folder: str, loaded: LoadedSweep) -> list[str]:
    """Top-level keys in which a file differs from the sweep that it has begun."""
    theirs, ours = read_spec(SweepPaths(Path(folder))), with_scheduler(frozen_spec(loaded))
    if "check" not in ours.scheduler.model_fields_set:  # it began before there was one
        kept = ours.scheduler.model_copy(update={"check": theirs.scheduler.check})
        ours = ours.model_copy(update={"scheduler": kept})
    keys = [key for key in SweepSpec.model_fields if key not in _OWN_KEYS]
    return [key for key in keys if getattr(theirs, key) != getattr(ours, key)]


@contextlib.contextmanager
def discarded_on_error(paths: SweepPaths) -> Iterator[None]:
    """After an error in this block, discard the sweep if it is empty: a new run begins it again."""
    try:
        yield
    except UserError as e:
        discard_empty_sweep(paths)
        if not paths.root.exists():
            e.problems = tuple(map(then_again, e.problems))
        raise


def discard_empty_sweep(paths: SweepPaths) -> None:
    """Remove the folder of a sweep that started no trial, unless another driver has it now."""
    if not paths.trials.exists() and current_driver(paths.lock) is None:
        shutil.rmtree(paths.root, ignore_errors=True)  # somebody may have deleted it
        with contextlib.suppress(OSError):  # the storage holds other sweeps
            paths.root.parent.rmdir()


def with_new_defaults(spec: SweepSpec) -> SweepSpec:
    """The spec with defaults that differ from those of sweeps that began before."""
    config = resolve(spec.trainable).Config.for_new_sweep(spec.fixed)
    fixed = {k: v for k, v in config.items() if k in spec.fixed or k not in spec.space}
    return spec.model_copy(update={"fixed": fixed})


def frozen_spec(loaded: LoadedSweep) -> SweepSpec:
    """The spec of a new sweep, without relative paths: workers and resumes have other folders."""
    spec = with_new_defaults(with_absolute_fixed(loaded))
    update: dict[str, Any] = {
        "named": spec.named and canonical(spec.named),
        "user_code": spec.user_code.mapped(canonical),
    }
    named = [_absolute(sweep) for sweep in spec.search.warm_start]
    update["search"] = spec.search.model_copy(update={"warm_start": named})
    return spec.model_copy(update=update)


def _with_code(spec: SweepSpec, paths: SweepPaths, code: Sequence[Path]) -> SweepSpec:
    """Copy files of training code into the folder, and name them there."""
    for file in code:
        paths.code.mkdir(exist_ok=True)
        write_atomic(paths.code / file.name, file.read_bytes())

    def moved(name: str) -> str:
        script, _, function = name.rpartition(":")
        path = Path(script)
        return f"{paths.code / path.name}:{function}" if path in code else name

    named = spec.named and moved(spec.named)
    return spec.model_copy(update={"named": named, "user_code": spec.user_code.mapped(moved)})


def _absolute(sweep: str) -> str:
    return str(Path(sweep).resolve()) if SweepPaths(Path(sweep)).is_sweep else sweep
