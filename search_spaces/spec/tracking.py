"""The `tracking`, `notify` and `monitoring` sections: who is told about a sweep."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from search_spaces.spec.base import EnvText, EnvVariable, NamedSection, Section

Event = Literal["end", "failure", "budget"]
_DEFAULT: list[Event] = ["end", "failure"]


class TrackingSpec(NamedSection):
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
    webhook: EnvVariable | None = Field(
        None, description="${NAME} of the variable with the address that gets a JSON text by POST."
    )

    @model_validator(mode="after")
    def _has_events(self) -> Self:
        if self.on != _DEFAULT and not (self.command or self.webhook):
            raise ValueError("needs command or webhook, which takes the messages")
        return self


class MonitoringSpec(Section):
    """Metrics of the running sweep, for Prometheus."""

    port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port at which the driver serves /metrics; 0: a free one; default: none.",
    )
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address at which it listens; beyond this machine it needs token or client_ca.",
    )
    token: EnvVariable | None = Field(
        None, description="${NAME} of the variable with the bearer token that readers send."
    )
    certificate: str | None = Field(
        None, min_length=1, description="PEM file of the server's certificate: TLS."
    )
    key: str | None = Field(None, min_length=1, description="PEM file of the certificate's key.")
    client_ca: str | None = Field(
        None,
        min_length=1,
        description="PEM file of the authority whose certificates readers show (mutual TLS).",
    )
    textfile: str | None = Field(
        None,
        min_length=1,
        description="Folder of node_exporter's textfile collector, where no port can be reached.",
    )

    @property
    def enabled(self) -> bool:
        """Whether any metrics are to be had."""
        return self.port is not None or self.textfile is not None

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine reach the port."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("client_ca needs certificate and key")
        given = [n for n in ("token", "certificate") if getattr(self, n) is not None]
        if self.port is None and (given or self.host != "127.0.0.1"):
            raise ValueError(f"{(given or ['host'])[0]} needs port, like port: 9108")
        if not self.is_local and self.token is None and self.client_ca is None:
            raise ValueError(
                f"host {self.host} is reached from other machines: it needs token, like "
                "token: ${METRICS_TOKEN}, or certificate, key and client_ca"
            )
        return self
