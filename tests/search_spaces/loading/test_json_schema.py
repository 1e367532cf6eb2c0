"""The shipped JSON Schema is up to date and agrees with the loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from search_spaces.domains.domain import KINDS
from tests.search_spaces.examples import BAD_FOLDER, MINIMAL, SHIPPED
from trainables.hyperparameters import sweep_schema

SCHEMA = sweep_schema()


def errors_of(text: str) -> list[Any]:
    data = YAML(typ="safe", pure=True).load(text)
    return list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(data))


def test_json_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"].keys() >= set(KINDS)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_file_matches_the_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=./sweep.schema.json\n")
    assert errors_of(text) == []


def test_named_section_may_be_text() -> None:
    text = MINIMAL.replace("{max_t: 9}", "none") + "search: random\ntracking: none\n"
    assert errors_of(text) == []
    assert errors_of(text.replace("random", "randon"))


@pytest.mark.parametrize(
    "name",
    [
        *["unknown_key", "unknown_section", "missing_keys", "bad_name", "wrong_types"],
        *["bad_duration", "zero_trials", "unknown_domain", "wrong_arguments", "negative_log"],
        *["fractions_for_integers", "empty_choice", "constant_in_space", "dotted_name", "bad_q"],
        "bad_normal",
        *["two_domains", "nameless_domain", "text_for_number"],
    ],
)
def test_json_schema_rejects_bad_file(name: str) -> None:
    assert errors_of((BAD_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def test_every_field_has_a_description() -> None:
    for section in (SCHEMA, *SCHEMA["$defs"].values()):
        for name, field in section.get("properties", {}).items():
            described = "description" in field or "$ref" in field or name in KINDS
            assert described or section.get("description") in (None, ""), name
