"""Who may see and change sweeps through the live page: only who has the token of this server.

The address that the command prints has the token; the browser keeps it in a cookie that no script
reads and that other sites' pages do not send. A change needs the token a second time, in a header,
and an `Origin` of this server. On the loopback interface no other host name is answered, so a name
that is made to point here reaches nothing.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "X-Tune-Token"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADERS = {
    # parallel coordinates of plotly compile functions
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """Refuses requests without the token, changes from other pages, and other host names.

    Args:
        app: what it protects.
        token: of this server.
        local: it listens on the loopback interface only.
    """

    def __init__(self, app: ASGIApp, token: str, local: bool) -> None:
        self._app, self._token, self._local = app, token, local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand the request on; every answer gets the headers."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        request = Request(scope, receive)
        answer = self._refusal(request) or self._sign_in(request)
        await (answer or self._app)(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        host = urlsplit(f"//{request.headers.get('host', '')}").hostname
        if self._local and host not in _LOOPBACK:
            return _refused(421, f"this server is not {host}")
        if request.method not in ("GET", "HEAD"):
            return self._change_refusal(request.headers)
        given = request.cookies.get(_cookie(request), "") or request.query_params.get("token", "")
        if not self._is_token(given):
            return _refused(403, "open the address that tune ui --live prints: it has the token")
        return None

    def _change_refusal(self, headers: Headers) -> Response | None:
        origin = urlsplit(headers.get("origin", ""))
        if not origin.netloc or origin.netloc != headers.get("host"):
            return _refused(403, "changes are only accepted from the page of this server (Origin)")
        if not self._is_token(headers.get(TOKEN_HEADER, "")):
            return _refused(403, f"a change needs the token in the header {TOKEN_HEADER}")
        return None

    def _sign_in(self, request: Request) -> Response | None:
        """Keep the token of the address in a cookie, and show the address without it."""
        if "token" not in request.query_params:
            return None
        answer = RedirectResponse(request.url.path, status_code=303)
        answer.set_cookie(_cookie(request), self._token, httponly=True, samesite="strict")
        return answer

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _cookie(request: Request) -> str:
    """A name for each port: browsers keep the cookies of a host's ports together."""
    return f"tune_live_{request.url.port or 80}"


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(why + "\n", status)
