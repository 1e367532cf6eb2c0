"""Object storage for the mirror of a sweep: S3, Google Cloud, Azure, or another folder.

Built on `pyarrow.fs`. An object is complete or absent. Transient errors are retried. Credentials
come from the environment, never from an address.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from results.storage.retry import TRANSIENT, retry_while
from results.storage.s3_kms import KmsFileSystem, split_key
from search_spaces.errors import UserError
from search_spaces.redaction import redact

_CHUNK = 8 * 2**20
_PART = ".part"
_REFUSED = (
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "INVALID_CLIENT_TOKEN_ID",
    "UNRECOGNIZED_CLIENT",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "AuthenticationFailed",
    "AuthorizationFailure",
)
_NO_BUCKET = ("NO_SUCH_BUCKET", "Bucket not found", "bucket does not exist", "ContainerNotFound")
_AWS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_AZURE = "AZURE_STORAGE_KEY, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
_FORMS = "write s3://bucket/prefix, gs://… or abfs://container@account.dfs.core.windows.net/prefix"


def _is_transient(error: OSError) -> bool:
    """Whether a retry may succeed. pyarrow errors often have no `errno`: then by their text."""
    if error.errno is not None:
        return error.errno in TRANSIENT
    return not any(word in str(error) for word in (*_REFUSED, *_NO_BUCKET))


class ContentMismatchError(Exception):
    """The bytes sent or fetched do not have the expected SHA-256."""


@dataclass(frozen=True)
class ObjectStore:
    """A location in object storage. Keys are relative to it, with `/` between their parts.

    Every method raises `OSError` when the storage still fails after the retries.
    """

    address: str
    filesystem: Any  # pyarrow.fs.FileSystem
    root: str

    def within(self, key: str) -> ObjectStore:
        """The location below a key."""
        return ObjectStore(f"{self.address}/{key}", self.filesystem, self._path(key))

    @retry_while(_is_transient)
    def put(self, key: str, data: bytes) -> None:
        """Create or replace an object."""
        with self._writing(key) as out:
            out.write(data)

    @retry_while(_is_transient)
    def send(self, key: str, source: Path, sha256: str) -> None:
        """Upload a file.

        Raises:
            ContentMismatchError: the file has another SHA-256.
        """
        with open(source, "rb") as read, self._writing(key) as out:
            _copy(read, out, sha256)

    @retry_while(_is_transient)
    def fetch(self, key: str, target: Path, sha256: str | None = None) -> None:
        """Download an object to a file, and create the file's folder.

        Raises:
            FileNotFoundError: there is no such object.
            ContentMismatchError: the object has another SHA-256.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        with self.filesystem.open_input_stream(self._path(key)) as read, open(target, "wb") as out:
            _copy(read, out, sha256)

    @retry_while(_is_transient)
    def read(self, key: str) -> bytes | None:
        """Content of a small object; None if it does not exist."""
        try:
            with self.filesystem.open_input_stream(self._path(key)) as read:
                return bytes(read.read())
        except FileNotFoundError:
            return None

    @retry_while(_is_transient)
    def sizes(self, key: str) -> dict[str, int]:
        """Size in bytes of every object below a key, by its name relative to the key."""
        from pyarrow.fs import FileSelector, FileType

        base = self._path(key)
        below = FileSelector(base, allow_not_found=True, recursive=True)
        found = self.filesystem.get_file_info(below)
        files = [f for f in found if f.type == FileType.File and not f.path.endswith(_PART)]
        return {f.path[len(base) + 1 :]: int(f.size) for f in files}

    @retry_while(_is_transient)
    def modified_at(self, key: str) -> float | None:
        """When an object was last written, in Unix seconds; None if it does not exist."""
        when = self.filesystem.get_file_info(self._path(key)).mtime
        return None if when is None else float(when.timestamp())

    @retry_while(_is_transient)
    def rename(self, key: str, to: str) -> None:
        """Give an object another key. Does nothing if it does not exist."""
        with suppress(FileNotFoundError):
            try:
                self.filesystem.move(self._path(key), self._path(to))
            except NotImplementedError:  # Azure, without hierarchical namespaces
                self.filesystem.copy_file(self._path(key), self._path(to))
                self.filesystem.delete_file(self._path(key))

    @retry_while(_is_transient)
    def remove(self, key: str, *, recursive: bool = False) -> None:
        """Delete an object, or everything below a key. Does nothing if it does not exist."""
        with suppress(FileNotFoundError):
            delete = self.filesystem.delete_dir if recursive else self.filesystem.delete_file
            delete(self._path(key))

    @contextmanager
    def explained(self, *, files: bool = True) -> Iterator[None]:
        """Explain errors of the storage in the block.

        Args:
            files: whether the block also reads or writes files, whose errors have a number and
                stay as they are.

        Raises:
            UserError: one line on what is wrong and what to do.
        """
        try:
            yield
        except OSError as e:
            if files and e.errno is not None:
                e.filename = e.filename or self.address
                raise
            raise _explain(self, e) from e

    def _path(self, key: str) -> str:
        return f"{self.root}/{key}" if key else self.root

    @contextmanager
    def _writing(self, key: str) -> Iterator[Any]:
        """A stream; its content becomes the object when the block ends without an error."""
        path = self._path(key)
        if self.filesystem.type_name != "local":  # an upload appears when it is complete
            with self.filesystem.open_output_stream(path) as out:
                yield out
            return
        self.filesystem.create_dir(os.path.dirname(path), recursive=True)
        with self.filesystem.open_output_stream(path + _PART) as out:
            yield out
        self.filesystem.move(path + _PART, path)


def open_object_store(address: str) -> ObjectStore:
    """Open an address such as `s3://bucket/prefix`, without a request to the storage.

    Raises:
        UserError: the address is not valid.
    """
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    address, encryption = split_key(address)
    try:
        if address.startswith("abfs"):
            files, base = open_azure(address)
        else:
            files, base = FileSystem.from_uri(_with_retry_limit(address))
    except (ArrowException, OSError) as e:
        reason = str(e).splitlines()[0]
        raise UserError(redact(f"{address}: {reason}; {_FORMS}")) from e
    if not base.strip("/"):
        raise UserError(redact(f"{address}: names no bucket; {_FORMS}"))
    if encryption is not None:
        files = KmsFileSystem(files, encryption)
    plain, _, _ = address.partition("?")
    return ObjectStore(plain.rstrip("/"), files, base.rstrip("/"))


def check_object_store(objects: ObjectStore) -> None:
    """List the location once, to test address and credentials.

    Raises:
        UserError: the listing failed, with the reason.
    """
    from pyarrow.fs import FileSelector

    with objects.explained(files=False), suppress(FileNotFoundError):  # the prefix is still empty
        objects.filesystem.get_file_info(FileSelector(objects.root))


def _explain(objects: ObjectStore, error: Exception) -> UserError:
    text = str(error)
    if any(word in text for word in _REFUSED):
        names = _AZURE if objects.filesystem.type_name == "abfs" else _AWS
        why = f"refused the credentials; set {names}"
    elif any(word in text for word in _NO_BUCKET):
        bucket = objects.root.partition("/")[0]
        why = f"there is no bucket '{bucket}'; create it, or name another"
    else:
        why = f"cannot be reached ({text.partition(';')[0].strip()}); see AWS_ENDPOINT_URL"
    return UserError(redact(f"{objects.address}: {why}"))


def _with_retry_limit(address: str) -> str:
    """Limit the retries of Google's client, which takes up to 15 minutes by default."""
    if not address.startswith(("gs://", "gcs://")) or "retry_limit_seconds" in address:
        return address
    return f"{address}{'&' if '?' in address else '?'}retry_limit_seconds=15"


def _copy(read: IO[bytes], out: IO[bytes], sha256: str | None) -> None:
    digest = hashlib.sha256()
    while chunk := read.read(_CHUNK):
        digest.update(chunk)
        out.write(chunk)
    if sha256 is not None and digest.hexdigest() != sha256:
        raise ContentMismatchError("has another SHA-256 than its manifest says")


def open_azure(address: str) -> tuple[Any, str]:
    """The file system and the path of `abfs://container@account.dfs.core.windows.net/prefix`.

    The account's key is `$AZURE_STORAGE_KEY`; without one, Azure's own identities are tried.
    `$AZURE_STORAGE_ENDPOINT` is the URL of another server of the same protocol, such as Azurite.

    Raises:
        ArrowInvalid: the address has another form.
    """
    from pyarrow import ArrowInvalid
    from pyarrow.fs import AzureFileSystem

    parts = urlsplit(address)
    account = (parts.hostname or "").partition(".")[0]
    if not (account and parts.username) or parts.password or parts.query:
        raise ArrowInvalid("not an address of Azure, or it has credentials")
    options: dict[str, str] = {}
    if endpoint := os.environ.get("AZURE_STORAGE_ENDPOINT"):
        server = urlsplit(endpoint)
        for service in ("blob", "dfs"):
            options[f"{service}_storage_authority"] = server.netloc
            options[f"{service}_storage_scheme"] = server.scheme
    key = os.environ.get("AZURE_STORAGE_KEY")
    files = AzureFileSystem(account, account_key=key, **options)
    return files, f"{parts.username}{parts.path}"
