"""In front of MLflow's pages: refuses requests of other web pages, and adds short addresses.

MLflow itself lets the pages of every `http://localhost:…` read and write. It is run by uvicorn, to
which `protocol` is given as the implementation of HTTP (`uvicorn --http`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Any, Send], Awaitable[None]]

ADDRESSES = "TUNE_MLFLOW_PAGES"
"""Variable with the long address of each short one, as JSON: `{"/runs": "/#/experiments/…"}`."""
_PRESETS = {
    "mlflow.workflowType_v1": '"machine_learning"',  # its navigation is that of runs, not of GenAI
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
}
"""Settings of MLflow's pages, which they keep in the browser: those that are not set there yet."""
_REDIRECT = """<!doctype html><meta charset="utf-8"><script>
for (const [key, value] of Object.entries({presets}))
  if (localStorage.getItem(key) === null) localStorage.setItem(key, value)
location.replace({address})
</script>"""


def protocol(config: Any, **parts: Any) -> Any:
    """uvicorn's own protocol, in front of the application with the check."""
    from uvicorn.protocols.http import auto

    make: Any = auto.AutoHTTPProtocol  # uvicorn declares it as a protocol without arguments
    made = make(config=config, **parts)
    addresses = json.loads(os.environ.get(ADDRESSES, "{}"))
    made.app = own_origin_only(with_short_addresses(made.app, addresses))
    return made


def with_short_addresses(app: App, addresses: Mapping[str, str]) -> App:
    """An ASGI application that also leads from short addresses to long ones of its pages."""

    async def answered(scope: Message, receive: Any, send: Send) -> None:
        if scope["type"] == "http" and (address := addresses.get(scope["path"])):
            given = {"{presets}": json.dumps(_PRESETS), "{address}": json.dumps(address)}
            page = _REDIRECT
            for name, value in given.items():
                page = page.replace(name, value.replace("<", "\\u003c"))
            await _send(send, 200, b"text/html", page.encode())
            return
        await app(scope, receive, send)

    return answered


async def _send(send: Send, status: int, kind: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def own_origin_only(app: App) -> App:
    """An ASGI application that answers requests of its own pages and of programs only.

    Browsers name the page that makes a request in `Origin`. `Host` is one of `--allowed-hosts`.
    """

    async def checked(scope: Message, receive: Any, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        origin = headers.get(b"origin")
        if scope["type"] == "http" and origin not in (None, b"http://" + headers.get(b"host", b"")):
            await _send(send, 403, b"text/plain", b"request of another page\n")
            return
        await app(scope, receive, send)

    return checked
