"""The JSON Schema that ships is fresh, and agrees with the loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from search_spaces.domains.domain import KINDS
from search_spaces.loading.sweep_file import json_schema, json_schema_text
from tests.search_spaces.bad_files import FOLDER
from tests.search_spaces.test_sweep_file import SHIPPED

IDS = [path.name for path in SHIPPED]


def faults(text: str) -> list[Any]:
    data = YAML(typ="safe", pure=True).load(text)
    return list(jsonschema.Draft202012Validator(json_schema()).iter_errors(data))


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert json_schema()["$defs"].keys() >= set(KINDS)


def test_the_shipped_schema_is_fresh() -> None:
    shipped = SHIPPED[0].with_name("sweep.schema.json").read_text(encoding="utf-8")
    assert shipped == json_schema_text(), "write it again: tune schema"


@pytest.mark.parametrize("path", SHIPPED, ids=IDS)
def test_shipped_files_point_to_the_schema_and_fit_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=./sweep.schema.json\n")
    assert faults(text) == []


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
def test_editors_see_the_mistakes_too(name: str) -> None:
    assert faults((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def test_every_field_is_described() -> None:
    schema = json_schema()
    for section in (schema, *schema["$defs"].values()):
        for name, field in section.get("properties", {}).items():
            described = "description" in field or "$ref" in field or name in KINDS
            assert described or section.get("description") in (None, ""), name
