"""The live page: who may see and change a sweep, and what it sends as records grow."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from results.records.notes import Note, read_notes
from results.records.trial import TrialState, read_reports, read_trial, read_trials
from results.sweep_folder.copies.mirror import RecordMirror, mirror_records
from results.sweep_folder.lock import acquire_lock
from search_spaces.errors import UserError
from tests.browser import Browser
from tests.tuning.simulate import make_spec, new_sweep, next_job, open_run, train
from tests.waiting import wait_for
from tuning.controller.commands import pending_commands
from tuning.controller.sweep import SweepController
from tuning.watch.live import mirrored
from tuning.watch.live.app import make_app
from tuning.watch.live.feed import RecordSource, Snapshot
from tuning.watch.live.mirrored import MirroredSource

TOKEN = "the-token"


@dataclass
class Page:
    """A real server of one sweep, and what a browser would send it."""

    run: SweepController
    port: int

    def ask(
        self, path: str, body: Mapping[str, str] | None = None, **headers: str
    ) -> tuple[int, Mapping[str, str], str]:
        """Status, headers and text of an answer; redirections are not followed."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with _OPENER.open(request, timeout=20) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.headers, e.read().decode()

    def see(self, path: str) -> tuple[int, Mapping[str, str], str]:
        return self.ask(path, Cookie=f"tune_live_{self.port}={TOKEN}")

    def do(self, action: str, **body: str) -> tuple[int, str]:
        status, _, text = self.ask(f"/do/{action}/s", body, **self.own)
        return status, text if status == 404 else json.loads(text)["said"]

    @property
    def own(self) -> dict[str, str]:
        """Headers of the page's own requests for a change."""
        return {"Origin": f"http://127.0.0.1:{self.port}", "X_Tune_Token": TOKEN}

    @contextmanager
    def events(self, path: str) -> Iterator[Callable[..., Any]]:
        """Wait for the data of an event that fulfils a condition."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        request.add_header("Cookie", f"tune_live_{self.port}={TOKEN}")
        with _OPENER.open(request, timeout=30) as stream:

            def until(good: Callable[[Any], bool]) -> Any:
                for line in stream:
                    found = json.loads(line[6:]) if line.startswith(b"data: ") else None
                    if found and good(found):
                        return found
                raise AssertionError("the stream ended")

            yield until


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    spec = make_spec(name="s", budget={"trials": 20})
    run = open_run(new_sweep(spec, tmp_path).root, spec)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = make_app(lambda: {"s": RecordSource(run.paths)}, TOKEN, local=True)
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=0)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Page(run, listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join()


def test_nothing_is_shown_without_the_token(page: Page) -> None:
    for path in ("/", "/sweeps/s", "/events/s", "/logs/t0000/s", "/static/page.css", "/?token=x"):
        assert page.ask(path)[0] == 403, path
    status, headers, _ = page.ask(f"/?token={TOKEN}")
    assert (status, headers["Location"]) == (303, "/")
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "SameSite=strict" in headers["Set-Cookie"]
    assert page.see("/")[1]["Location"] == "/sweeps/s"
    assert (
        page.ask("/sweeps/s", Cookie=f"tune_live_{page.port}={TOKEN}", Host="evil.example")[0]
        == 421
    )


def test_page_loads_nothing_from_elsewhere(page: Page) -> None:
    _, headers, html = page.see("/sweeps/s")
    addresses = re.findall(r'(?:src|href)="(.*?)"', html)
    assert len(addresses) == 9
    for address in addresses:
        assert address == "data:," or page.see(address)[0] == 200
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert page.see("/sweeps/other")[0] == 404
    assert page.see("/sweeps/../s")[0] == 404


@pytest.mark.parametrize(
    "change",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"X_Tune_Token": "wrong"},
        {"X_Tune_Token": ""},
    ],
)
def test_changes_need_the_own_origin_and_the_token(page: Page, change: dict[str, str]) -> None:
    train(page.run, page.run.next_trial(), upto=1)
    cookie = {"Cookie": f"tune_live_{page.port}={TOKEN}"}
    assert page.ask("/do/stop/s", {}, **cookie, **{**page.own, **change})[0] == 403
    assert page.see("/do/stop/s")[0] == 405
    assert read_trial(page.run.paths.trial("t0000")).state is TrialState.RUNNING


def test_changes_are_those_of_the_commands(page: Page) -> None:
    train(page.run, page.run.next_trial(), upto=1)
    paths = page.run.paths
    assert page.do("explode")[0] == 404
    assert page.do("add", values="x=0.5") == (200, f"queued; run it with: tune resume {paths.root}")
    assert page.do("add", values="nothing=1")[0] == 409
    assert page.do("pause") == (
        409,
        "s: no driver runs it, so there is nothing to pause; "
        f"continue with: tune resume {paths.root}",
    )
    with acquire_lock(paths.lock):
        status, said = page.do("stop", trial="t0000")
        assert (status, "stops t0000 at the next report" in said) == (200, True)
        assert page.do("pause")[0] == 200
        status, said = page.do("extend", trials="+2")
        assert (status, "pause it first" in said) == (409, True)
    assert [c.do for c in pending_commands(paths)] == ["add", "stop", "pause"]
    assert page.do("stop", trial="t0000") == (200, "stopped t0000")
    assert read_trial(paths.trial("t0000")).state is TrialState.STOPPED


def test_parts_arrive_as_records_grow(page: Page) -> None:
    first = page.run.next_trial()
    train(page.run, first, upto=2)
    with page.events("/events/s") as until:
        assert until(lambda e: "lead" in e)["finished"] is False
        [row] = until(lambda e: isinstance(e, list))
        assert (row["state"], row["steps"]) == ("running", [1, 2])
        train(page.run, first, upto=3)
        page.run.on_failed("t0000", "rank 0: ValueError: no")
        until(lambda e: isinstance(e, list) and e[0]["steps"] == [1, 2, 3])
        rows = until(lambda e: "failed" in str(e) and "rows" in e)["rows"]
        assert ["t0000", "failed: rank 0: ValueError: no"] in [[r[1], r[2][:30]] for r in rows]
        with acquire_lock(page.run.paths.lock):
            until(lambda e: e.get("driver"))


def test_a_note_is_stored_and_shown(page: Page) -> None:
    train(page.run, page.run.next_trial(), upto=1)
    cookie = {"Cookie": f"tune_live_{page.port}={TOKEN}"}
    body = {"trial": "t0000", "text": "odd <b>", "tags": "keep, again"}
    refused = {**page.own, "X_Tune_Token": "wrong"}
    assert page.ask("/do/note/s", body, **cookie, **refused)[0] == 403
    assert not page.run.paths.notes.exists()
    assert page.do("note", trial="t0009", text="x")[0] == 409
    with page.events("/events/s") as until:
        until(lambda e: isinstance(e, list))
        with acquire_lock(page.run.paths.lock):
            assert page.do("note", **body) == (
                200,
                "saved; MLflow gets it when the session ends",
            )
        [row] = until(lambda e: isinstance(e, list) and e[0]["note"])
        assert (row["note"], row["tags"]) == ("odd <b>", ["keep", "again"])


def test_details_of_a_trial_are_served(page: Page) -> None:
    train(page.run, page.run.next_trial(), upto=1)
    status, _, text = page.see("/trials/t0000/s")
    assert (status, len(json.loads(text)["attempts"])) == (200, 1)
    assert page.see("/trials/t0009/s")[0] == 409


def test_log_of_a_trial_goes_on(page: Page) -> None:
    job = page.run.next_trial()
    log = job.paths.log(1, 0)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("one\n")
    (log.parent / "rank_0.old.log").touch()  # a person's copy
    assert page.see("/logs/t0009/s")[0] == 409
    with page.events("/logs/t0000/s") as until:
        assert until(bool) == ["t0000 rank 0: one"]
        with log.open("a") as file:
            file.write("two <b>\n")
        assert until(bool) == ["t0000 rank 0: two <b>"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("width", [390, 1200])
def test_browser_draws_the_page(page: Page, tmp_path: Path, width: int) -> None:
    for _ in range(9):
        job = page.run.next_trial()
        train(page.run, job)
        page.run.on_ended(job.trial_id)
    address = f"http://127.0.0.1:{page.port}/sweeps/s?token={TOKEN}"
    with Browser(tmp_path / "profile", width) as browser:
        body = browser.visit(address, "document.body && document.body.dataset.plots")
        browser.value("location.hash = '#trial/t0002'")
        wait_for(lambda: browser.value("Boolean(document.querySelector('#detail form.notes'))"))
        browser.value(
            "with (document.querySelector('#detail form.notes').elements)"
            " { text.value = 'look <img>'; tags.value = 'keep'; }"
        )
        browser.value("document.querySelector('#detail form.notes').requestSubmit()")
        wait_for(lambda: read_notes(page.run.paths).get("t0002") == Note("look <img>", ("keep",)))
        wait_for(lambda: browser.value("sweep.trials.get('t0002').note") == "look <img>")
        assert browser.value("document.querySelectorAll('img').length") == 0
    assert "interrupted" in body
    assert "Best so far: " in body
    for key in ("curves", "history"):
        part = re.search(f'id="s-{key}".*?</section>', body, re.DOTALL)
        assert part is not None, key
        assert "svg-container" in part[0], key


def test_mirrored_sweep_is_read_and_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(checkpoint={"mirror": (tmp_path / "far").as_uri()})
    paths = new_sweep(spec, tmp_path / "here")
    with acquire_lock(paths.lock) as fence, mirror_records(paths, spec, fence) as mirror:
        assert isinstance(mirror, RecordMirror)
        run = open_run(paths.root, spec)
        job = run.next_trial()
        train(run, job, upto=2)
        mirror.send()
        monkeypatch.setattr(mirrored, "_REFRESH_S", 0.0)
        source = MirroredSource(f"{spec.checkpoint.mirror}/{spec.name}", tmp_path / "copy")
        assert source.driver() == "a driver on another machine"
        assert "change the sweep on the machine that drives it" in source.read_only
        assert read_trials(source.paths)[0].id == job.trial_id
        assert len(read_reports(source.paths.trial(job.trial_id))) == 2
        monkeypatch.setattr(mirrored, "has_driver", lambda objects: False)
        monkeypatch.setattr(mirrored, "fetch_records", failing)
        with pytest.raises(UserError, match="network"):
            source.refresh()
        assert source.driver() is not None  # until the last records are here


def failing(*given: object) -> Any:
    raise OSError("network")


def test_change_that_an_error_hides_is_shown_later(tmp_path: Path) -> None:
    spec = make_spec(name="s", budget={"trials": 2})
    run = open_run(new_sweep(spec, tmp_path).root, spec)
    source, shown = RecordSource(run.paths), dict[str, str]()
    snapshot = Snapshot(source)
    snapshot.update(shown.__setitem__)
    train(run, job := next_job(run))
    source.driver = failing  # type: ignore[method-assign]
    with pytest.raises(OSError, match="network"):
        snapshot.update(shown.__setitem__)
    del source.driver
    snapshot.update(shown.__setitem__)
    assert f"trial {job.trial_id}" in shown
