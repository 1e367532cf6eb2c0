"""Notices of clouds that they take a machine away soon, as its metadata server tells them.

AWS: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
Google: https://cloud.google.com/compute/docs/instances/create-use-spot
Azure: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

GRACE_S: Mapping[str, float] = {"aws": 120.0, "gcp": 30.0, "azure": 30.0}
"""Seconds from a cloud's notice to the end of its machine, at least."""

_DMI = Path("/sys/class/dmi/id")
_MARKS = {
    ("sys_vendor", "Amazon EC2"): "aws",
    ("product_name", "Google Compute Engine"): "gcp",
    ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"): "azure",
}
_TIMEOUT_S = 2.0
_direct = build_opener(ProxyHandler({}))  # a metadata server answers its own machine only


def cloud_here(dmi: Path = _DMI) -> str | None:
    """The cloud that this machine belongs to, by the names in its firmware; None: of none."""
    for (name, mark), cloud in _MARKS.items():
        file = dmi / name
        if file.is_file() and file.read_text().strip() == mark:
            return cloud
    return None


def read_notice(cloud: str) -> str | None:
    """What the cloud says of this machine's end; None if it says nothing.

    The server's address is the cloud's, or in the variable that its own libraries read:
    `AWS_EC2_METADATA_SERVICE_ENDPOINT`, `GCE_METADATA_HOST`, `AZURE_POD_IDENTITY_AUTHORITY_HOST`.

    Raises:
        OSError: the server cannot be reached, or refuses.
        ValueError: its answer is not what the cloud documents.
    """
    return {"aws": _aws, "gcp": _gcp, "azure": _azure}[cloud]()


def _aws() -> str | None:
    server = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")
    server = server.rstrip("/")
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _text(Request(f"{server}/latest/api/token", headers=lifetime, method="PUT"))
    about = f"{server}/latest/meta-data/spot/instance-action"
    try:
        found = _text(Request(about, headers={"X-aws-ec2-metadata-token": token}))
    except HTTPError as e:
        if e.code == 404:  # there is none yet
            return None
        raise
    said = json.loads(found)
    return f"AWS: {said['action']} at {said['time']}"


def _gcp() -> str | None:
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    about = f"http://{host}/computeMetadata/v1/instance/preempted"
    said = _text(Request(about, headers={"Metadata-Flavor": "Google"}))
    return "Google: preempted" if said.strip() == "TRUE" else None


def _azure() -> str | None:
    server = os.environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://169.254.169.254")
    about = f"{server.rstrip('/')}/metadata"
    asked = {"Metadata": "true"}
    name = f"{about}/instance/compute/name?api-version=2021-02-01&format=text"
    events = f"{about}/scheduledevents?api-version=2020-07-01"
    preempted = [
        event
        for event in json.loads(_text(Request(events, headers=asked)))["Events"]
        if event["EventType"] in ("Preempt", "Terminate")
    ]
    if not preempted:
        return None
    machine = _text(Request(name, headers=asked)).strip()  # events are those of a whole group
    mine = [event for event in preempted if machine in event["Resources"]]
    return f"Azure: {mine[0]['EventType']} not before {mine[0]['NotBefore']}" if mine else None


def _text(request: Request) -> str:
    with _direct.open(request, timeout=_TIMEOUT_S) as answer:
        return str(answer.read().decode())
