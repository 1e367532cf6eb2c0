"""Changes of a sweep from the live page: the functions of `tune stop`, `pause`, `add`, `resume`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from results.paths import SweepPaths
from results.storage.sharing import refuse_outside_links
from results.sweep_folder.lock import current_driver
from search_spaces.errors import UserError
from tuning.controller.commands import add_configuration, pause_session, stop_trials
from tuning.watch.background import BackgroundSession
from tuning.watch.notes import save_note


def _extend(paths: SweepPaths, asked: Mapping[str, str]) -> str:
    """`tune resume --detach`, with more trials or time; on a Ray of its own, as without --address.

    Raises:
        UserError: a driver runs the sweep, or the session ended at once.
    """
    if driver := current_driver(paths.lock):
        raise UserError(f"{driver} runs {paths.name}: pause it first, then extend it")
    given = {"--trials": asked.get("trials", ""), "--time": asked.get("time", "")}
    options = [f"{option}={value}" for option, value in given.items() if value]
    session = BackgroundSession(paths, more=options)
    driver = session.wait_for_driver()
    if driver is None and session.process.returncode:
        raise UserError(session.output.strip() or "the session ended at once")
    return f"{driver} runs {paths.name}" if driver else session.output.strip()


def _note(paths: SweepPaths, asked: Mapping[str, str]) -> str:
    tags = asked.get("tags", "").split(",")
    return save_note(paths, asked.get("trial", ""), asked.get("text", ""), tags)


_Action = Callable[[SweepPaths, Mapping[str, str]], str]


def _checked(action: _Action) -> _Action:
    def act(paths: SweepPaths, asked: Mapping[str, str]) -> str:
        refuse_outside_links(paths.root)
        return action(paths, asked)

    return act


ACTIONS: Mapping[str, _Action] = {
    "stop": _checked(lambda paths, asked: stop_trials(paths, asked.get("trial") or None)),
    "pause": _checked(lambda paths, _: pause_session(paths)),
    "add": _checked(lambda paths, asked: add_configuration(paths, asked.get("values", "").split())),
    "extend": _checked(_extend),
    "note": _checked(_note),
}
"""By name: what a change does with a sweep and the texts that were asked; its effect in words."""
