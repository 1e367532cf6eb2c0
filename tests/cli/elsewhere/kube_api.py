"""An API server of Kubernetes that keeps objects, and no more: for what kubectl is made to do.

It knows the resources that it is told, as discovery and OpenAPI show them to kubectl, and neither
schemas nor controllers. Tests write the status of objects in the place of KubeRay and Kueue.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
_VERBS = ["create", "delete", "get", "list", "patch", "update"]
_WHOLE_CLUSTER = ("Namespace", "PriorityClass", "StorageClass", "ResourceFlavor", "ClusterQueue")


class KubeApi:
    """Its objects, by the path of their address.

    Args:
        kinds: (apiVersion, kind) of the resources that it has.
    """

    def __init__(self, kinds: set[tuple[str, str]]) -> None:
        self.kinds, self.objects = kinds, dict[str, Object]()
        self.asked: list[str] = []
        self.refusals: dict[str, tuple[int, str]] = {}
        """By a part of method and path: a status and its reason, in the place of an answer."""

    def answer(self, method: str, address: str, body: Object | None) -> tuple[int, Object]:
        """The status and the body for a request."""
        path = urlsplit(address).path
        if method == "GET" and (found := self._described(path)) is not None:
            return 200, found
        self.asked.append(f"{method} {address}")
        for part, refusal in self.refusals.items():
            if part in f"{method} {path}":
                return _failure(*refusal, path)
        return self._resource(method, path, body, address)

    def _resource(
        self, method: str, path: str, body: Object | None, address: str
    ) -> tuple[int, Object]:
        if method == "POST":
            assert body is not None
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return _failure(409, "AlreadyExists", path)
            self.objects[path] = body
            return 201, body
        if path not in self.objects:
            found = [o for p, o in self.objects.items() if p.rpartition("/")[0] == path]
            if method == "GET" and self._is_list(path):
                wanted = parse_qs(urlsplit(address).query).get("labelSelector", [""])[0]
                found = [o for o in found if _matches(o, wanted)]
                return 200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": found}
            return _failure(404, "NotFound", path)
        if method == "DELETE":
            return 200, {"kind": "Status", "status": "Success", "details": self.objects.pop(path)}
        if method == "PATCH":
            assert body is not None
            self.objects[path] = _merged(self.objects[path], body)
        return 200, self.objects[path]

    def _is_list(self, path: str) -> bool:
        plurals = {_plural(kind) for _, kind in self.kinds}
        *_, before, last = path.split("/")
        return last in plurals and (before not in plurals or before == "namespaces")

    def _described(self, path: str) -> Object | None:
        """Discovery, OpenAPI, or nothing."""
        groups = sorted({version for version, _ in self.kinds})
        named = [g for g in groups if "/" in g]
        fixed: dict[str, Object] = {
            "/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [*map(_group, named)]},
            "/openapi/v3": {
                "paths": {
                    root.strip("/"): {"serverRelativeURL": f"/openapi/v3{root}?hash=1"}
                    for root in map(_root, groups)
                }
            },
        }
        for version in groups:
            kinds = [kind for each, kind in self.kinds if each == version]
            resources = [_resource(kind) for kind in kinds]
            listed = {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
            fixed[_root(version)] = {"apiVersion": "v1", **listed}
            fixed[f"/openapi/v3{_root(version)}"] = _openapi(version, kinds)
        return fixed.get(path)


@contextmanager
def kube_api(kinds: set[tuple[str, str]], kubeconfig: Path) -> Iterator[KubeApi]:
    """Serve one while the block runs, as the only context of a file for kubectl."""
    api = KubeApi(kinds)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            status, made = api.answer(self.command, self.path, body)
            data = json.dumps(made).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        context = {"name": "test", "context": {"cluster": "test", "user": "test"}}
        config = {
            **{"apiVersion": "v1", "kind": "Config", "current-context": "test"},
            "clusters": [{"name": "test", "cluster": {"server": address}}],
            "users": [{"name": "test", "user": {"token": "t"}}],
            "contexts": [context],
        }
        kubeconfig.write_text(json.dumps(config))
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def _group(version: str) -> Object:
    this = {"groupVersion": version, "version": version.partition("/")[2]}
    return {"name": version.partition("/")[0], "versions": [this], "preferredVersion": this}


def _plural(kind: str) -> str:
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def _resource(kind: str) -> Object:
    names = {"name": _plural(kind), "singularName": kind.lower(), "kind": kind}
    return {**names, "namespaced": kind not in _WHOLE_CLUSTER, "verbs": _VERBS}


def _openapi(version: str, kinds: list[str]) -> Object:
    """That the server itself validates what it gets; schemas it has none."""
    group, _, name = version.rpartition("/")
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {}
    for kind in kinds:
        key = {"group": group, "version": name, "kind": kind}
        patch = {"parameters": [parameter], "x-kubernetes-group-version-kind": key}
        patch["responses"] = {"200": {"description": "OK"}}
        paths[f"{_root(version)}/{_plural(kind)}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "t", "version": "1"}, "paths": paths}


def _failure(code: int, reason: str, path: str) -> tuple[int, Object]:
    name = path.rpartition("/")[2]
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return code, {**status, "reason": reason, "message": f"{name}: {reason}"}


def _matches(found: Object, selector: str) -> bool:
    labels = found["metadata"].get("labels", {})
    return all(labels.get(k) == v for k, _, v in (s.partition("=") for s in selector.split(",")))


def _merged(old: Object, new: Object) -> Object:
    """JSON merge patch (RFC 7396)."""
    merged = dict(old)
    for key, value in new.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged
