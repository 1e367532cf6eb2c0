"""`tune certs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuning.cli.formatting import echo


def certs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="The folder for them.")
    ],
    hosts: Annotated[
        list[str],
        typer.Argument(metavar="HOST…", help="Addresses or names of the Ray cluster's machines."),
    ],
    also: Annotated[
        list[str], typer.Option("--also", metavar="NAME", help="One more name of each machine.")
    ] = [],  # noqa: B006 - typer reads the default, it is never changed
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long they are valid.")] = 365,
) -> None:
    """Make certificates, so that a Ray cluster encrypts its traffic.

    Machines that come later are signed by the authority that DIR has already.

    Example: tune certs certs 10.0.0.1 10.0.0.2
    """
    from tuning.certificates import CA_CERTIFICATE, CA_KEY, CERTIFICATE, KEY, make_certificates

    for made in make_certificates(folder, hosts, days, also):
        echo(f"{made}: {CERTIFICATE}, {KEY}")
    echo(f"""
Each machine needs its folder, {CA_CERTIFICATE}, and in the environment of `ray start` and `tune`,
with the absolute path of DIR there:

    export RAY_USE_TLS=1 RAY_TLS_CA_CERT=DIR/{CA_CERTIFICATE}
    export RAY_TLS_SERVER_CERT=DIR/HOST/{CERTIFICATE} RAY_TLS_SERVER_KEY=DIR/HOST/{KEY}

Keep {folder / CA_KEY} to yourself: who has it can join the cluster.""")
