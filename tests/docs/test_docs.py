"""Checks the documents: commands, sweep files, code, links and the generated reference."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from ruamel.yaml import YAML

from results.checkpoints.commit import newest_intact
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from search_spaces.examples import examples
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.scheduler import SCHEDULERS
from search_spaces.spec.search import SEARCHERS
from search_spaces.spec.sweep import SweepSpec
from tests.docs.reference import PAGES as GENERATED
from tests.docs.reference import page_text
from tests.trainables.local import RecordingChannel, run_trial
from trainables.base import Split
from trainables.job import Answer
from trainables.registry import TRAINABLES, resolve
from trainables.user_code.ray_code import builds_trainer
from trainables.user_code.user_loop import UserLoop
from tuning.cli.app import make_app
from tuning.controller.preflight.checks import preflight

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|<img[^>]* src=\"([^\"]+)\"")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
COMMANDS = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]  # it is a group


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """(page and line, text) of each fenced block of a language."""
    for page, text in TEXT.items():
        for found in FENCE.finditer(text):
            if found[1] == language:
                yield f"{page}:{text.count(chr(10), 0, found.start()) + 1}", found[2]


def sweeps() -> Iterator[tuple[str, str]]:
    return ((where, text) for where, text in blocks("yaml") if "trainable:" in text)


def block_named(name: str, page: str) -> str:
    """The block of a page that begins with `# <name>`."""
    found: list[tuple[str, str]] = FENCE.findall(TEXT[page])
    return next(text for _, text in found if text.startswith(f"# {name}\n"))


def test_readme_is_short() -> None:
    assert len(TEXT["README.md"].splitlines()) <= 120


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_documentation_and_an_example(name: str) -> None:
    assert re.search(rf"\btune {name}\b", "\n".join(TEXT.values())), "in no document"
    assert re.search(rf"Example: tune {name}\b", COMMANDS[name].help), "no example in its help"


def test_documented_commands_and_options_exist() -> None:
    for page, text in TEXT.items():
        for line in re.findall(r"^(?:    )?\$? ?(tune .+)$", text, re.MULTILINE):
            _, name, *words = line.split("#")[0].split()
            if name == "--version":
                continue
            assert name in COMMANDS, f"{page}: {line}"
            known = {o for p in COMMANDS[name].params for o in p.opts} | {"--help"}
            assert {w for w in words if w.startswith("--")} <= known, f"{page}: {line}"


def test_documented_tests_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)`", page)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {n for text in TEXT.values() for n in re.findall(r"\bmake ([\w-]+)", text)}
    assert {"quickstart", "test"} <= named <= targets


@pytest.mark.parametrize(("where", "text"), [pytest.param(*s, id=s[0]) for s in sweeps()])
def test_documented_sweep_files_load(where: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    if "name: bad" in text:
        with pytest.raises(UserError):
            load_sweep(file)
    else:
        load_sweep(file)


SPACE = {"x": {"uniform": [0, 1]}}
BASE = {"name": "base", "trainable": "digits", "metric": "loss", "space": SPACE}
OTHER = {"trainable", "command", "constraints", "points"}  # a whole file, or of another space


def fragments() -> Iterator[tuple[str, dict[str, Any]]]:
    """Blocks with some keys of a sweep file, as recipes show them."""
    for where, text in blocks("yaml"):
        content = YAML(typ="safe").load(text)
        if content.keys() <= SweepSpec.model_fields.keys() - OTHER:
            yield where, content


@pytest.mark.parametrize(("where", "keys"), [pytest.param(*f, id=f[0]) for f in fragments()])
def test_documented_keys_load(
    where: str, keys: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sweep.yaml"
    limits = {"scheduler": {"name": "none"}, "budget": {"trials": 4}}
    file.write_text(json.dumps({**BASE, **limits, **keys}))
    for name in re.findall(r"\$\{(\w+)\}", file.read_text()):
        monkeypatch.setenv(name, "https://example.org/hook")
    load_sweep(file)


def example_commands() -> Iterator[tuple[Path, list[str]]]:
    """(file, changes) of each command that is in the comments of a shipped sweep file."""
    for file in (file for file in examples().values() if file.parent.name != "pipelines"):
        text = re.sub(r"\\\n#\s*", "", file.read_text())
        for line in re.findall(r"^#\s+tune run (.*--set.*)$", text, re.MULTILINE):
            name, *words = shlex.split(line)
            assert Path(name).name == file.name
            yield file, [word for word in words if word != "--set"]


@pytest.mark.parametrize(("file", "changes"), list(example_commands()))
def test_changes_in_comments_of_examples_fit_the_file(file: Path, changes: list[str]) -> None:
    """Without the files of data and models, which are the reader's."""
    preflight(load_sweep(file, changes))


def test_documented_errors_are_those_of_the_loader(tmp_path: Path) -> None:
    bad = next(text for _, text in sweeps() if "name: bad" in text)
    (tmp_path / "bad.yaml").write_text(bad)
    with pytest.raises(UserError) as caught:
        load_sweep(tmp_path / "bad.yaml")
    shown = TEXT["docs/sweep-file.md"].partition("<!-- what tune plan bad.yaml says -->\n")[2]
    assert shown.startswith("\n".join(["```text", *caught.value.problems, "```"]))


@pytest.mark.parametrize(("where", "text"), [pytest.param(*b, id=b[0]) for b in blocks("python")])
def test_documented_python_compiles(where: str, text: str) -> None:
    compile(text, where, "exec")


@pytest.mark.parametrize("page", TEXT)
def test_links_have_targets(page: str) -> None:
    for match in LINK.finditer(TEXT[page]):
        link = match[1] or match[2]
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in {_anchor(h) for h in HEADING.findall(target.read_text())}, link


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", GENERATED, ids=lambda page: page.stem)
def test_reference_is_up_to_date(page: Path) -> None:
    written = page.read_text(encoding="utf-8")
    assert written == page_text(page), "run: python -m tests.docs.reference"


def test_every_trainable_searcher_and_scheduler_is_documented() -> None:
    everything = "\n".join(TEXT.values())
    for name in [*TRAINABLES, *SEARCHERS, *SCHEDULERS]:
        assert f"`{name}`" in everything


EXAMPLES = ("line", "my_loop", "my_trainer", "tuned")


class TestOwnCode:
    """The examples of docs/trainables.md."""

    PAGE = "docs/trainables.md"

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        examples = [f"{name}.{kind}" for name in EXAMPLES for kind in ("py", "yaml")]
        for name in examples:
            (tmp_path / name).write_text(block_named(name, self.PAGE))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))

    @pytest.mark.parametrize("name", ["my_loop", "my_trainer"])
    def test_loop_is_planned(self, name: str) -> None:
        loaded = load_sweep(Path(f"{name}.yaml"))
        assert preflight(loaded)
        assert isinstance(resolve(loaded.spec.trainable), UserLoop)
        assert builds_trainer(loaded.spec.trainable) is (name == "my_trainer")

    @pytest.mark.parametrize("name", ["train_fn", "Line"])
    def test_code_for_ray_tune_learns_and_resumes(self, name: str, tmp_path: Path) -> None:
        loaded = load_sweep(Path("tuned.yaml"), [f"trainable=tuned.py:{name}"])
        assert preflight(loaded)
        code = loaded.spec.trainable
        job: dict[str, Any] = {"trainable": code, "config": {"lr": 0.1}, "max_t": 9}
        whole = run_trial(tmp_path / "whole", **job)
        stop = RecordingChannel({4: Answer.STOP})
        cut = run_trial(tmp_path / "cut", **job, channel=stop)
        rest = run_trial(tmp_path / "cut", **job, attempt=2)
        assert [len(run.curve) for run in (whole, cut, rest)] == [9, 4, 5]
        assert {**cut.curve, **rest.curve} == whole.curve

    def test_class_checks_its_configuration(self) -> None:
        spec = load_sweep(Path("line.yaml")).spec
        names = spec.domains().keys() | spec.fixed.keys()
        model = resolve(spec.trainable).Config
        assert names <= model.model_fields.keys()
        assert model.model_validate(spec.fixed).checkpoint_bytes == 24
        assert model.problems({"learning_rat": 1}) == [
            (
                ("learning_rat",),
                "unknown hyperparameter 'learning_rat' (did you mean 'learning_rate'?)",
            )
        ]

    def test_class_learns_resumes_bit_identically_and_is_evaluated(self, tmp_path: Path) -> None:
        spec = load_sweep(Path("line.yaml")).spec
        whole = run_trial(tmp_path / "whole", spec.trainable, spec.fixed, checkpoint_every=3)
        losses = [m["loss"] for m in whole.curve.values()]
        assert losses[-1] < losses[0]
        cut = run_trial(
            tmp_path / "cut",
            spec.trainable,
            spec.fixed,
            channel=RecordingChannel({4: Answer.STOP}),
        )
        rest = run_trial(tmp_path / "cut", spec.trainable, spec.fixed, attempt=2)
        assert {**cut.curve, **rest.curve} == whole.curve
        found = newest_intact(TrialPaths(tmp_path / "cut"))
        assert found is not None
        own = resolve(spec.trainable)
        config = own.Config.model_validate(spec.fixed)
        scores = [own.evaluate(config, found.folder, s, tmp_path) for s in Split]
        assert [s.keys() for s in scores] == [{"loss"}] * 3
