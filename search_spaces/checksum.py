"""Checksums inside of our text files, so that a flipped bit is noticed: the last member of a JSON
object, the first line of a `sweep.yaml`. A file without one is taken as it is.
"""

from __future__ import annotations

import re
import zlib

_MEMBER = re.compile(rb',\s*"crc32":"([0-9a-f]{8})"}\s*\Z')
CHECKSUM_PREFIX = "# crc32 "
"""How the line begins."""
_LINE = re.compile(rb"\A# crc32 ([0-9a-f]{8}) of what follows; delete this line when you edit\n")


def add_json_checksum(text: str) -> str:
    """A JSON object, not empty, with the checksum of its text as its last member."""
    body = text.rstrip()[:-1].rstrip()
    return f'{body},"crc32":"{_crc(body.encode())}"}}'


def json_is_intact(data: bytes) -> bool:
    """Whether the text of an object is what was sealed."""
    found = _MEMBER.search(data, max(0, len(data) - 64))
    return found is None or _crc(data[: found.start()]) == found[1].decode()


def json_matches_checksum(data: bytes) -> bool:
    """Whether the text of an object bears a checksum, and matches it: it is what was written."""
    return _MEMBER.search(data, max(0, len(data) - 64)) is not None and json_is_intact(data)


def add_yaml_checksum(text: str) -> str:
    """YAML with the checksum of its text in a comment on its first line."""
    return f"# crc32 {_crc(text.encode())} of what follows; delete this line when you edit\n{text}"


def yaml_is_intact(data: bytes) -> bool:
    """Whether the text is what was sealed."""
    found = _LINE.match(data)
    return found is None or _crc(data[found.end() :]) == found[1].decode()


def _crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"
