"""Data of an average of weights for a tracker, read from the folder of the soup."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from results.averaging.soup import SOUP_FILE, Score, Soup, read_soup
from results.paths import SweepPaths
from search_spaces.errors import UserError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Average:
    """The content of one average's run.

    Attributes:
        digest: of its record, which holds the hashes of its sources, so that a later average with
            the same name has another digest.
        created: Unix seconds.
        members: the trials whose weights are in it.
        params: method, options, and candidates.
        metrics: on the test split, with the ends of their 95 % intervals.
        tags: members, their common start, and whether it was promoted.
        artifacts: file name to text.
    """

    name: str
    digest: str
    created: float
    members: tuple[str, ...]
    params: Mapping[str, object]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    artifacts: Mapping[str, str]


def read_averages(paths: SweepPaths) -> Iterator[Average]:
    """The averages of a sweep, sorted by name; a damaged one is skipped with a warning."""
    for record in sorted(paths.soup("x").parent.glob(f"[!.]*/{SOUP_FILE}")):
        try:
            soup = read_soup(record.parent)
            text, created = record.read_text(), record.stat().st_mtime
        except (UserError, OSError) as e:
            log.warning("average skipped: %s", e)
            continue
        digest = hashlib.sha256(text.encode()).hexdigest()
        members = tuple(dict.fromkeys(m.partition("@")[0] for m in soup.members))
        yield Average(
            record.parent.name,
            digest,
            created,
            members,
            params=_params(soup),
            metrics=_metrics(soup),
            tags=_tags(soup),
            artifacts={SOUP_FILE: text},
        )


def _params(soup: Soup) -> dict[str, object]:
    shares = {f"share.{c['label']}": c["share"] for c in soup.candidates if c["share"] is not None}
    options = {f"option.{key}": value for key, value in soup.options.items()}
    return {
        "method": soup.method,
        "candidates": _listed([c["label"] for c in soup.candidates]),
        "dtype": soup.dtype or "as stored",
        "force": soup.force,
        **options,
        **shares,
    }


def _metrics(soup: Soup) -> dict[str, float]:
    """The average's own score without a prefix, the others with their names."""
    metric = soup.metric or "score"
    found = _with_interval(f"test/{metric}", soup.scores[soup.method])
    for name, score in soup.scores.items():
        if name != soup.method:
            found |= _with_interval(f"test/{name}/{metric}", score)
    found |= {"test/gain": soup.gain.mean}
    if soup.gain.error is not None:
        found |= {"test/gain_standard_error": soup.gain.error}
    if soup.rank_loss is not None:
        found |= {"rank_loss": soup.rank_loss}
    return found


def _with_interval(key: str, score: Score) -> dict[str, float]:
    low, high = score.interval or (None, None)
    ends = {} if low is None or high is None else {f"{key}_low": low, f"{key}_high": high}
    return {key: score.mean, **ends}


def _tags(soup: Soup) -> dict[str, str]:
    starts = {str(c["init"]) for c in soup.candidates if c.get("init")}
    tags = {
        "tune.members": _listed(soup.members),
        "tune.single": soup.single,
        "tune.promoted": str(soup.promoted).lower(),
        "tune.weights": _listed([c["sha256"] for c in soup.candidates]),
    }
    return {**tags, "tune.init": starts.pop()} if len(starts) == 1 else tags


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))
