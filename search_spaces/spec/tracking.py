"""The `tracking` and `notify` sections: who is told about a sweep."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from search_spaces.spec.base import EnvText, Section
from search_spaces.spec.env_vars import original, references

Event = Literal["end", "failure", "budget"]
_DEFAULT: list[Event] = ["end", "failure"]


class TrackingSpec(Section):
    """Logging of runs, for comparison."""

    name: Literal["mlflow", "none"] = Field("mlflow", description="Tracker.")
    uri: EnvText | None = Field(
        None, description="Tracking server, ${ENV} allowed; default: a database in storage."
    )
    experiment: str | None = Field(
        None,
        min_length=1,
        max_length=500,
        description="Experiment's name; default: the sweep's, or the pipeline's.",
    )
    log_model: Literal["none", "winner"] = Field(
        "none", description="winner: log the weights of the winner as a model, at the sweep's end."
    )

    @model_validator(mode="after")
    def _has_tracker(self) -> Self:
        if self.name == "none" and self.log_model != "none":
            raise ValueError("log_model: winner needs name: mlflow")
        return self


class NotifySpec(Section):
    """Messages to you, while you do not watch the sweep."""

    on: list[Event] = Field(
        default_factory=lambda: [*_DEFAULT],
        min_length=1,
        description="end: a session ended; failure: a trial failed for good; budget: the sweep is "
        "done, because a limit of its budget is reached.",
    )
    command: list[Annotated[str, Field(min_length=1)]] | None = Field(
        None,
        min_length=1,
        description="Program and arguments, with {event}, {sweep} and {text}.",
    )
    webhook: EnvText | None = Field(
        None, description="${NAME} of the variable with the address that gets a JSON text by POST."
    )

    @field_validator("webhook")
    @classmethod
    def _is_a_variable(cls, webhook: str | None) -> str | None:
        text = original(webhook)
        if text is not None and text != f"${{{''.join(references(text))}}}":
            raise ValueError(
                "needs the name of a variable, like ${SWEEP_WEBHOOK}: anyone who knows the address "
                "can write to you"
            )
        return webhook

    @model_validator(mode="after")
    def _has_events(self) -> Self:
        if self.on != _DEFAULT and not (self.command or self.webhook):
            raise ValueError("needs command or webhook, which takes the messages")
        return self
