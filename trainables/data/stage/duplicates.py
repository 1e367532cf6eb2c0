"""Finds texts that occur twice, word for word or nearly.

MinHash (Broder 1997): for a random order of all runs of words, two texts have the same first run
with the probability that is their Jaccard similarity. Bands of such minima find candidates.
"""

from __future__ import annotations

import hashlib
import unicodedata
import zlib

import numpy as np
import numpy.typing as npt

RUN = 5
"""Words of a run."""
BANDS, ROWS = 16, 4
MINIMA = BANDS * ROWS
"""Minima of a signature; the standard error of an estimate is at most 1/16."""
_PRIME = np.uint64(2**31 - 1)
_RANDOM = np.random.default_rng(1997)
_FACTORS = _RANDOM.integers(1, int(_PRIME), MINIMA, dtype=np.uint64)
_OFFSETS = _RANDOM.integers(0, int(_PRIME), MINIMA, dtype=np.uint64)
Signature = npt.NDArray[np.uint32]


def normalise(text: str) -> str:
    """The text without differences of case, spaces and forms of Unicode."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def digest(text: str) -> str:
    """SHA-256 of the normalised text, in hex."""
    return hashlib.sha256(normalise(text).encode("utf-8", "surrogatepass")).hexdigest()


def signature(text: str) -> Signature:
    """The minima of a text's runs of words, uint32 [64]."""
    words = normalise(text).encode("utf-8", "surrogatepass").split()
    runs = {b" ".join(words[i : i + RUN]) for i in range(max(1, len(words) - RUN + 1))}
    hashes = np.array([zlib.crc32(run) for run in runs], dtype=np.uint64) % _PRIME
    mixed = (hashes[:, None] * _FACTORS + _OFFSETS) % _PRIME
    least: Signature = mixed.min(axis=0).astype(np.uint32)
    return least


def similarity(one: Signature, other: Signature) -> float:
    """Estimate of the Jaccard similarity of two texts' runs, 0 to 1."""
    return float((one == other).mean())


class NearDuplicates:
    """The texts so far.

    Args:
        least: similarity from which two texts count as one.
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self._kept: list[Signature] = []
        self._bands: dict[tuple[int, bytes], list[int]] = {}

    def add(self, mark: Signature) -> bool:
        """Keep a text, unless it is nearly one of those that are kept; returns whether it is."""
        keys = [(band, mark[band * ROWS : (band + 1) * ROWS].tobytes()) for band in range(BANDS)]
        near = {i for key in keys for i in self._bands.get(key, ())}
        if any(similarity(mark, self._kept[i]) >= self._least for i in near):
            return False
        for key in keys:
            self._bands.setdefault(key, []).append(len(self._kept))
        self._kept.append(mark)
        return True
