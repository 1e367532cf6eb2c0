"""Objects that are encrypted by a key of KMS, in a server that says which."""

import hashlib
from pathlib import Path

import boto3
import pytest

from results.checkpoints.retention import Retention
from results.paths import SweepPaths
from results.storage.object_store import open_object_store
from results.sweep_folder.copies.backup_writer import take_backup
from search_spaces.errors import UserError
from tests.object_store import BUCKET

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd"
pytestmark = pytest.mark.slow


def keys(prefix: str) -> dict[str, tuple[str | None, str | None]]:
    """Of each object below a prefix: how it is encrypted, and by which key, as the headers say.

    Empty objects in the place of folders, which pyarrow leaves, are not listed.
    """
    client = boto3.client("s3", region_name="us-east-1")
    found = {}
    for item in client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", []):
        if item["Key"].endswith("/"):
            continue
        head = client.head_object(Bucket=BUCKET, Key=item["Key"])
        found[item["Key"]] = head.get("ServerSideEncryption"), head.get("SSEKMSKeyId")
    return found


def test_every_write_names_the_key(server: str, tmp_path: Path) -> None:
    host = server.removeprefix("http://")
    options = f"sse_kms_key_id={KEY}&scheme=http&endpoint_override={host}"
    for address in (f"s3://{BUCKET}/kms?sse_kms_key_id={KEY}", f"s3://{BUCKET}/kms?{options}"):
        objects = open_object_store(address)
        assert objects.address == f"s3://{BUCKET}/kms"
        large = b"x" * (9 * 2**20)  # in parts
        (tmp_path / "large").write_bytes(large)
        objects.put("small", b"one")
        objects.send("a/large", tmp_path / "large", hashlib.sha256(large).hexdigest())
        objects.rename("small", "renamed")
        objects.rename("missing", "nowhere")
        assert set(keys("kms/").items()) == {
            ("kms/a/large", ("aws:kms", KEY)),
            ("kms/renamed", ("aws:kms", KEY)),
        }
        assert objects.read("renamed") == b"one"
        assert objects.sizes("a") == {"large": len(large)}
        objects.fetch("a/large", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == large
        objects.remove("", recursive=True)
        assert keys("kms/") == {}


def test_backup_is_encrypted(server: str, tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path / "llm")
    paths.root.mkdir()
    paths.spec.write_text("name: llm\n")
    objects = open_object_store(f"s3://{BUCKET}/saved?sse_kms_key_id={KEY}").within("llm")
    retention = Retention(newest=1, best=0, metric="loss", mode="min")
    take_backup(paths.root, "k", objects, {paths: retention})
    assert set(keys("saved/").values()) == {("aws:kms", KEY)}
    objects.remove("", recursive=True)


def test_mistakes_are_explained(server: str) -> None:
    for wrong in (f"s3://{BUCKET}/x?sse_kms_key_id=", f"gs://{BUCKET}/x?sse_kms_key_id=k"):
        with pytest.raises(UserError, match="needs the id or ARN of a key, and an s3:// address"):
            open_object_store(wrong)
    with pytest.raises(OSError, match="NO_SUCH_BUCKET"):  # a permanent error is not retried
        open_object_store("s3://nowhere/x?sse_kms_key_id=k").put("key", b"")
