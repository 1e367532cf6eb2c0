from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.loading.sweep_file import dump_sweep, load_sweep
from search_spaces.spec.env_vars import expand
from tests.search_spaces.examples import MINIMAL


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("$HOME $$ {A}", "$HOME $$ {A}"),
        ("${A}/x/${B}", "one/x/"),
        ("${A:-other}${B:-two}${C:-three}${C:-}", "onetwothree"),
    ],
)
def test_expand_replaces_variables(text: str, expected: str) -> None:
    assert expand(text, {"A": "one", "B": ""}) == expected


def test_expand_is_not_recursive() -> None:
    assert expand("${A}", {"A": "${B}", "B": "two"}) == "${B}"


@pytest.mark.parametrize("text", ["${}", "${1A}", "${A", "${A:default}", "${A:-${B}}"])
def test_expand_refuses_malformed_references(text: str) -> None:
    with pytest.raises(ValueError, match=r"needs \$\{NAME\} or"):
        expand(text, {"A": "one", "B": "two"})


def test_dump_and_repr_hide_expanded_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "s3cret")
    monkeypatch.setenv("SCRATCH", "/scratch")
    path = tmp_path / "small.yaml"
    path.write_text(
        MINIMAL + "storage: ${SCRATCH}/sweeps\ntracking:\n  uri: https://u:${TOKEN}@host\n"
    )
    spec = load_sweep(path).spec
    assert spec.storage == "/scratch/sweeps"
    assert f"{spec.tracking.uri}" == "https://u:s3cret@host"
    written = dump_sweep(spec)
    assert "https://u:${TOKEN}@host" in written
    assert "${SCRATCH}/sweeps" in written
    for shown in (written, repr(spec), str(spec), spec.model_dump_json(), str(spec.model_dump())):
        assert "s3cret" not in shown
    path.write_text(written)
    monkeypatch.setenv("TOKEN", "renewed")
    assert load_sweep(path).spec.tracking.uri == "https://u:renewed@host"
