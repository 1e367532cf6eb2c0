"""The `monitoring` section: metrics for Prometheus."""

from __future__ import annotations

import ipaddress
from typing import Self

from pydantic import Field, field_validator, model_validator

from search_spaces.spec.base import EnvText, Section
from search_spaces.spec.env_vars import original, references


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
    token: EnvText | None = Field(
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

    @field_validator("token")
    @classmethod
    def _is_a_variable(cls, token: str | None) -> str | None:
        text = original(token)
        if text is not None and text != f"${{{''.join(references(text))}}}":
            raise ValueError("needs the name of a variable, like ${METRICS_TOKEN}: it is a secret")
        return token

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
