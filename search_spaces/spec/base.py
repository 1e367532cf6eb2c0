"""Base class and field types of the sections of a sweep file."""

from __future__ import annotations

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
)
from pydantic_core import CoreSchema, core_schema

from search_spaces.spec.duration import PATTERN, parse_duration
from search_spaces.spec.env_vars import expand, original

Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": PATTERN, "examples": ["90s", "5m", "2h", "1h30m"]},
            ]
        }
    ),
]
FROZEN = "frozen"
"""Validation context of a sweep folder's file: `${ENV}` is expanded when it is used, not read."""


def _expand_unless_frozen(text: str, info: ValidationInfo) -> str:
    return text if info.context == FROZEN else expand(text)


EnvText = Annotated[
    str,
    Field(min_length=1),
    AfterValidator(_expand_unless_frozen),
    PlainSerializer(original, return_type=str),
]


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
