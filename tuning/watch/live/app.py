"""The server of the live page: pages, server-sent events, logs of trials, and changes by POST."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import plotly
from plotly.offline import get_plotlyjs
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from results.paths import SweepPaths
from results.records.trial import read_trial
from results.report.home_page import SweepRows
from results.report.page import (
    SWEEP_SCRIPTS,
    TABLE_SCRIPTS,
    asset,
    render,
    script_json,
    section_messages,
)
from results.report.trial_rows import trial_details
from results.sweep_folder.folder import find_trial
from search_spaces.errors import UserError
from tuning.watch.live.actions import ACTIONS
from tuning.watch.live.feed import POLL_S, Feed, RecordSource
from tuning.watch.live.guard import Guard
from tuning.watch.logs import LogTail

_TAIL = 2**17
"""Bytes of a log that a page begins with."""
_MAX_BODY = 2**16
_DAY_S = 86400
_NEW = {"Cache-Control": "no-store"}
_PLOTLY = f"plotly-{plotly.__version__}.js"


def make_app(
    find: Callable[[], Mapping[str, RecordSource]], token: str, *, local: bool
) -> Starlette:
    """The server as an ASGI application.

    Args:
        find: the sweeps that it shows, by name, as they are now.
        token: without it, nothing is answered.
        local: it listens on the loopback interface only.
    """
    pages = _Pages(find, token)
    return Starlette(
        routes=[
            Route("/", pages.index),
            Route("/static/{name}", _static),
            Route("/events/{name:path}", pages.events),
            Route("/logs/{trial}/{name:path}", pages.logs),
            Route("/trials/{trial}/{name:path}", pages.trial),
            Route("/do/{action}/{name:path}", pages.change, methods=["POST"]),
            Route("/sweeps/{name:path}", pages.sweep),
        ],
        middleware=[Middleware(Guard, token=token, local=local)],
        exception_handlers={UserError: _explain},
    )


class _Pages:
    def __init__(self, find: Callable[[], Mapping[str, RecordSource]], token: str) -> None:
        self._find, self._token = find, token
        self._feeds: dict[str, Feed] = {}
        self._rows = SweepRows()

    async def index(self, request: Request) -> Response:
        """The table of the sweeps; the page of the only one."""
        sources = await asyncio.to_thread(self._find)
        if len(sources) == 1:
            return RedirectResponse(_address(next(iter(sources))))
        found = {name: source.paths for name, source in sources.items()}
        table = await asyncio.to_thread(self._rows.section, found, _address)
        return _page("Sweeps", messages=section_messages([table]), scripts=TABLE_SCRIPTS)

    async def sweep(self, request: Request) -> Response:
        """The page of a sweep; its content comes as events."""
        name = self._feed(request)[0]
        given = {"scripts": (*SWEEP_SCRIPTS, "live.js"), "state": "reading the records …"}
        home = "/" if len(await asyncio.to_thread(self._find)) > 1 else ""
        return _page(name, address=quote(name), token=self._token, home=home, **given)

    async def events(self, request: Request) -> Response:
        """The parts of the page, as they change."""
        return _stream(self._feed(request)[1].stream())

    async def trial(self, request: Request) -> Response:
        """What the page of a trial shows beside its row."""
        paths = self._feed(request)[1].source.paths
        record = read_trial(find_trial(paths, request.path_params["trial"]))
        found = await asyncio.to_thread(trial_details, paths, record)
        return Response(script_json(found), media_type="application/json", headers=_NEW)

    async def logs(self, request: Request) -> Response:
        """The end of a trial's logs, then its new lines."""
        paths = self._feed(request)[1].source.paths
        trial = request.path_params["trial"]
        find_trial(paths, trial)
        return _stream(_log_events(LogTail(paths, trial, tail=_TAIL)))

    async def change(self, request: Request) -> Response:
        """Do what a command of the same name does; answers its effect in words."""
        source = self._feed(request)[1].source
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            raise HTTPException(404)
        if source.read_only:
            raise UserError(source.read_only)
        asked = await _asked(request)
        return JSONResponse({"said": await asyncio.to_thread(action, source.paths, asked)})

    def _feed(self, request: Request) -> tuple[str, Feed]:
        name = request.path_params["name"]
        if name not in self._feeds:
            source = self._find().get(name)
            if source is None:
                raise HTTPException(404, f"no sweep {name}")
            self._feeds[name] = Feed(source)
        return name, self._feeds[name]


def _address(name: str, paths: SweepPaths | None = None) -> str:
    return f"/sweeps/{quote(name)}"


async def _asked(request: Request) -> dict[str, str]:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MAX_BODY:
            raise HTTPException(413)
    try:
        asked = json.loads(data or b"{}")
    except ValueError as e:
        raise HTTPException(400, "not JSON") from e
    if not isinstance(asked, dict) or not all(isinstance(v, str) for v in asked.values()):
        raise HTTPException(400, "not an object of texts")
    return asked


async def _log_events(tail: LogTail) -> AsyncIterator[str]:
    while True:
        lines = await asyncio.to_thread(
            lambda: [f"{t} rank {r}: {line}" for t, r, line in tail.lines()]
        )
        yield f"data: {json.dumps(lines)}\n\n" if lines else ": nothing new\n\n"
        await asyncio.sleep(POLL_S)


def _stream(events: AsyncIterator[str]) -> Response:
    headers = {**_NEW, "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _page(title: str, **given: Any) -> Response:
    html = render(title=title, static=True, plotly_src=f"/static/{_PLOTLY}", **given)
    return HTMLResponse(html, headers=_NEW)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    kind = {".css": "text/css", ".js": "text/javascript"}.get(Path(name).suffix, "")
    content = _contents().get(name)
    if content is None:
        raise HTTPException(404)
    long = name.startswith("plotly")  # its name has the version
    cached = f"private, max-age={_DAY_S}, immutable" if long else "no-cache"
    return Response(content, media_type=kind, headers={"Cache-Control": cached})


@cache
def _contents() -> dict[str, str]:
    live = (files("tuning.watch.live") / "live.js").read_text(encoding="utf-8")
    shared = {name: asset(name) for name in ("page.css", *SWEEP_SCRIPTS)}
    return {_PLOTLY: get_plotlyjs(), "live.js": live, **shared}


async def _explain(request: Request, error: Exception) -> Response:
    """A mistake of the user, in the words of the command."""
    problems = error.problems if isinstance(error, UserError) else [str(error)]
    return JSONResponse({"said": "\n".join(problems)}, 409)
