"""S3 with server-side encryption by a key of AWS KMS, which pyarrow cannot ask for.

Reads are pyarrow's. Every write names the key: `s3://bucket/prefix?sse_kms_key_id=KEY`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from search_spaces.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTION = "sse_kms_key_id"
_IN_MEMORY = 8 * 2**20
"""Bytes of an object from which on it waits for its upload in a temporary file."""


class Encryption(NamedTuple):
    """The key of an address, and the URL of a server that is not AWS."""

    key: str
    endpoint: str | None


def split_key(address: str) -> tuple[str, Encryption | None]:
    """An address without the option that names a key, and what the option says.

    Raises:
        UserError: the option is empty, or the address is not one of S3.
    """
    plain, _, query = address.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if OPTION not in options:
        return address, None
    key = options.pop(OPTION)
    if not key or not plain.startswith("s3://"):
        raise UserError(f"{plain}: {OPTION} needs the id or ARN of a key, and an s3:// address")
    host, scheme = options.get("endpoint_override"), options.get("scheme", "https")
    endpoint = f"{scheme}://{host}" if host else None
    rest = f"?{urlencode(options)}" if options else ""
    return plain + rest, Encryption(key, endpoint)


class KmsFileSystem:
    """pyarrow's file system of S3, whose writes are encrypted by a key.

    Args:
        reads: of the same account and endpoint.
        encryption: id, alias or ARN of the key, and the server.

    Raises:
        UserError: boto3 is not installed.
    """

    def __init__(self, reads: Any, encryption: Encryption) -> None:
        try:
            import boto3
        except ImportError as e:
            raise UserError(f"{OPTION}: needs pip install 'tune-platform[kms]'") from e
        self._reads = reads
        self._client = boto3.client(
            "s3", region_name=reads.region, endpoint_url=encryption.endpoint
        )
        self._options = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": encryption.key}

    def __getattr__(self, name: str) -> Any:
        """Everything that writes nothing."""
        return getattr(self._reads, name)

    @contextmanager
    def open_output_stream(self, path: str) -> Iterator[IO[bytes]]:
        """A stream, whose content becomes the object when the block ends without an error."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as out:
            yield out
            out.seek(0)
            with _as_os_error():
                self._client.upload_fileobj(out, **_bucket_and_key(path), ExtraArgs=self._options)

    def copy_file(self, path: str, to: str) -> None:
        """Copy an object, encrypted again."""
        with _as_os_error():
            self._client.copy(_bucket_and_key(path), **_bucket_and_key(to), ExtraArgs=self._options)

    def move(self, path: str, to: str) -> None:
        """Give an object another key."""
        self.copy_file(path, to)
        self._reads.delete_file(path)


def _bucket_and_key(path: str) -> Mapping[str, str]:
    bucket, _, key = path.partition("/")
    return {"Bucket": bucket, "Key": key}


@contextmanager
def _as_os_error() -> Iterator[None]:
    """Raise boto3's errors as pyarrow would: `OSError`, without a number."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as e:
        if e.response.get("Error", {}).get("Code") in ("404", "NoSuchKey"):
            raise FileNotFoundError(str(e)) from e
        raise OSError(_with_names(str(e))) from e
    except (BotoCoreError, Boto3Error) as e:
        raise OSError(_with_names(str(e))) from e


def _with_names(text: str) -> str:
    """The text with pyarrow's names of refusals, by which they are known."""
    for theirs in ("AccessDenied", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        text = text.replace(theirs, re.sub(r"\B(?=[A-Z])", "_", theirs).upper())
    return text
