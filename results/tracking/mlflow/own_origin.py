"""Refuses requests to MLflow's pages that other web pages make, also those of this machine.

MLflow itself lets the pages of every `http://localhost:…` read and write. It is run by uvicorn, to
which `protocol` is given as the implementation of HTTP (`uvicorn --http`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
App = Callable[[Message, Any, Callable[[Message], Awaitable[None]]], Awaitable[None]]


def protocol(config: Any, **parts: Any) -> Any:
    """uvicorn's own protocol, in front of the application with the check."""
    from uvicorn.protocols.http import auto

    make: Any = auto.AutoHTTPProtocol  # uvicorn declares it as a protocol without arguments
    made = make(config=config, **parts)
    made.app = own_origin_only(made.app)
    return made


def own_origin_only(app: App) -> App:
    """An ASGI application that answers requests of its own pages and of programs only.

    Browsers name the page that makes a request in `Origin`. `Host` is one of `--allowed-hosts`.
    """

    async def checked(
        scope: Message, receive: Any, send: Callable[[Message], Awaitable[None]]
    ) -> None:
        headers = dict(scope.get("headers", ()))
        origin = headers.get(b"origin")
        if scope["type"] == "http" and origin not in (None, b"http://" + headers.get(b"host", b"")):
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b"request of another page\n"})
            return
        await app(scope, receive, send)

    return checked
