"""Base class and field types of the sections of a sweep file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from search_spaces.spec.env_vars import expand, original, references

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
DURATION = r"^(?=.)" + "".join(rf"({_NUMBER}{unit})?" for unit in _UNITS) + "$"
"""Regular expression of the text form; shared with the JSON Schema."""


def parse_duration(value: object) -> float:
    """Convert a duration to seconds.

    Args:
        value: seconds as a number, or text with the units d, h, m, s, largest first.

    Raises:
        ValueError: not a duration, or not above zero.
    """
    seconds = _seconds(value)
    if seconds is None or not 0 < seconds < float("inf"):
        raise ValueError(
            "must be a duration above zero: seconds, or text like '90s', '5m', '1h30m', "
            f"got {value!r}"
        )
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or not (match := re.fullmatch(DURATION, value)):
        return None
    parts = (part for part in match.groups() if part)
    return float(sum(float(part[:-1]) * _UNITS[part[-1]] for part in parts))


Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": DURATION, "examples": ["90s", "5m", "2h", "1h30m"]},
            ]
        }
    ),
]
FROZEN, BEGUN = "frozen", "begun"
"""Validation contexts of a sweep folder's file, which may be of an earlier version. `${ENV}` of a
frozen one is expanded when it is used, not read.
"""


def _expand_unless_frozen(text: str, info: ValidationInfo) -> str:
    return text if info.context == FROZEN else expand(text)


EnvText = Annotated[
    str,
    Field(min_length=1),
    AfterValidator(_expand_unless_frozen),
    PlainSerializer(original, return_type=str),
]


def _check_variable(text: str) -> str:
    if (raw := original(text)) != f"${{{''.join(references(raw or ''))}}}":
        raise ValueError("needs the name of a variable, like ${NAME}: its value is a secret")
    return text


EnvVariable = Annotated[EnvText, AfterValidator(_check_variable)]
"""A secret: the file has the name of its variable, and nothing else."""


@dataclass(frozen=True)
class OneOf:
    """Annotation of a text field that takes one of these names: a `Literal` made from a dict."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


class Section(BaseModel):
    """A section of the file: immutable, unknown keys are refused, values are not converted."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, serialize_by_alias=True
    )


class NamedSection(Section):
    """A section that may be given by its name alone: `scheduler: none` is `{name: none}`."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: Any) -> Any:
        return from_name(data)


def from_name(section: Any) -> Any:
    """The keys of a section that is given by its name alone; anything else unchanged."""
    return {"name": section} if isinstance(section, str) else section
