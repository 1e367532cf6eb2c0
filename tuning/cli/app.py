"""The commands by name, and the output of errors."""

from __future__ import annotations

import errno
import gc
import inspect
import logging
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from search_spaces.errors import UserError, suggest
from tuning.cli.formatting import echo, shown, tell
from tuning.cli.output import guarded_output

_PARAGRAPH_LINE = re.compile(r"(?<!\n)\n(?!\n|Example: | )")
"""A line break inside a paragraph of a docstring, which the help would keep."""
GROUPS = {
    "Run": {
        "run": "run.run",
        "resume": "run.run",
        "plan": "run.plan",
        "trial": "run.trial",
        "add": "run.control",
        "stop": "run.control",
        "pause": "run.control",
        "mv": "run.folders",
        "delete": "run.folders",
    },
    "Look": {
        "ls": "look.ls",
        "show": "look.show",
        "logs": "look.logs",
        "attach": "look.logs",
        "ui": "look.ui",
        "report": "look.report",
        "compare": "look.compare",
    },
    "Use": {
        "best": "use.best",
        "average": "use.average",
        "export": "use.export",
        "evaluate": "use.evaluate",
        "generate": "use.generate",
        "predict": "use.predict",
        "reproduce": "use.reproduce",
        "transfer": "use.transfer",
    },
    "Elsewhere": {
        "submit": "elsewhere.submit",
        "queue": "elsewhere.submit",
        "cancel": "elsewhere.submit",
        "render": "elsewhere.render",
        "up": "elsewhere.up",
        "down": "elsewhere.up",
        "backup": "elsewhere.backup",
        "restore": "elsewhere.backup",
        "fetch": "elsewhere.transfer",
        "sync": "elsewhere.transfer",
    },
    "Set up": {
        "init": "setup.init",
        "describe": "setup.describe",
        "doctor": "setup.doctor",
        "probe": "setup.probe",
        "monitor": "setup.monitor",
        "certs": "setup.certs",
        "schema": "setup.describe",
    },
}
"""The groups of `tune --help`, in its order: of each command, the module with its function."""
COMMANDS = {
    name: (group, f"tuning.cli.{module}")
    for group, commands in GROUPS.items()
    for name, module in commands.items()
}
"""The group and the module of each command."""

_READING = ("ls", "show")
"""Commands that start no thread or process, and leave nothing to do for the interpreter's end."""


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        echo(f"tune-platform {version('tune-platform')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log to stderr; LOG_LEVEL=DEBUG logs more.")
    ] = False,
) -> None:
    level = os.environ.get("LOG_LEVEL") or ("INFO" if verbose else None)
    if level is not None:
        _log_to_stderr(level.upper())


_VALUES = {"<int>": "N", "<int range>": "N", "<float>": "X", "<float range>": "X"}
_VALUES |= {"<str>": "TEXT", "<path>": "PATH"}


def _named_values(params: list[Any], ctx: Any) -> list[Any]:
    """Parameters whose values the help names by words, where it would say <int range>."""
    for param in params:
        if param.param_type_name == "argument":
            name = param.metavar = param.metavar or param.name.upper()
            piece = name if param.required else f"[{name}]"
            param.display_type_rich = lambda ctx: None
            param.get_usage_pieces = lambda ctx, piece=piece: [piece]
        elif getattr(param, "is_flag", False):
            param.metavar = ""
        else:
            kind = param.display_type(ctx) or ""
            param.metavar = param.metavar or _VALUES.get(kind, kind.strip("<>"))
    return params


class _TuneCommand(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _named_values(super().get_params(ctx), ctx)


class _TuneGroup(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _named_values(super().get_params(ctx), ctx)


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The application with some of the commands: to build all takes a fifth of a second."""
    app = typer.Typer(
        name="tune",
        cls=_TuneGroup,
        help="Hyperparameter sweeps over multi-GPU training: search, resume, compare, average, "
        "export.",
        epilog="Start with: tune init digits",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name in names:
        group, module = COMMANDS[name]
        command = getattr(import_module(module), name)
        text = _PARAGRAPH_LINE.sub(" ", inspect.getdoc(command) or "")
        app.command(name, cls=_TuneCommand, rich_help_panel=group, help=text)(command)
    return app


def _log_to_stderr(level: str) -> None:
    """Let this project's loggers write from a level on, those of libraries from WARNING on."""
    levels = logging.getLevelNamesMapping()
    if level not in levels:
        raise UserError(f"LOG_LEVEL {level}: no such level{suggest(level, levels)}")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger().handlers[0].addFilter(_without_secrets)
    for name in ("search_spaces", "results", "trainables", "tuning"):
        logging.getLogger(name).setLevel(level)
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # advises what nothing here uses


def _without_secrets(record: logging.LogRecord) -> bool:
    from search_spaces.redaction import redact

    record.msg, record.args = shown(redact(record.getMessage())), None
    return True


def program() -> None:
    """What `tune` runs: `main`, and a quick end of commands that only read.

    Taking modules and records apart at the end of a process takes a tenth of a second.
    """
    try:
        main()
    except SystemExit as e:
        if next(iter(sys.argv[1:]), "") not in _READING or not isinstance(e.code, int | None):
            raise
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed by the caller
            stream.flush()
        os._exit(e.code or 0)


def main(*, may_hand_over: bool = True) -> None:
    """Run the command line. Problems are printed as `_end` says; docs/commands.md has exit codes.

    Args:
        may_hand_over: whether the driver that `tune up` has prepared may run it.
    """
    from results.storage.atomic import ADVICE, storage_error

    gc.set_threshold(50_000)  # imports and records are many objects, and no cycles
    os.umask(0o077)  # only the user may read configurations, weights and logs
    try:
        if may_hand_over and sys.argv[1:2] in (["run"], ["resume"]):
            from tuning.cluster.driver_client import hand_over

            if (code := hand_over(sys.argv[1:])) is not None:
                sys.exit(code)
        command = next((a for a in sys.argv[1:] if not a.startswith("-")), None)
        with guarded_output(command):
            app = make_app([command] if command in COMMANDS else COMMANDS)
            code = app(prog_name="tune", standalone_mode="--json" not in sys.argv)
        sys.exit(code)
    except TyperException as e:  # with --json only: otherwise Typer prints it
        _end(e.exit_code, [e.format_message()])
    except OSError as e:
        if e.errno not in ADVICE or (e.errno == errno.EACCES and not e.filename):  # not a file
            raise
        _end(UserError.exit_code, [str(storage_error(e))])
    except UserError as e:
        _end(e.exit_code, e.problems)
    finally:
        sys.excepthook = _print_traceback  # typer has set its own


def _end(code: int, problems: Sequence[str]) -> NoReturn:
    """End with problems on stderr: a line each, or with `--json` as one object."""
    from results.storage.atomic import then_again
    from search_spaces.redaction import redact

    problems = [redact(problem) for problem in problems]
    if {"run", "resume"}.isdisjoint(sys.argv):  # resume does not repeat other commands
        problems = [then_again(problem) for problem in problems]
    if "--json" in sys.argv:
        from tuning.cli.json_output import error_json

        problems = [error_json(problems)]
    for problem in problems:
        tell(problem, err=True)
    sys.exit(code)


def _print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback of a bug without secrets: that of a detached session goes to a log."""
    import traceback

    from search_spaces.redaction import redact

    sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))
