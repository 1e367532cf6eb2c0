"""What a tracker gets of an average of weights: read from the folder that `results.averaging.soup` wrote."""

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
    """One average as its own run tells it.

    Attributes:
        name: of its folder.
        digest: of its recipe, which names its sources by their hashes: another average that takes
            the same name has another one.
        created: Unix seconds.
        members: the trials whose weights are in it.
        params: method, options, what was averaged.
        metrics: on the test split, with the ends of their 95 % intervals.
        tags: whose weights are in it, where they started, whether it was promoted.
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


def averages(paths: SweepPaths) -> Iterator[Average]:
    """Every average of a sweep, by name."""
    for recipe in sorted(paths.soup("x").parent.glob(f"[!.]*/{SOUP_FILE}")):
        try:
            soup = read_soup(recipe.parent)
            text, created = recipe.read_text(), recipe.stat().st_mtime
        except (UserError, OSError) as e:
            log.warning("average passed over, %s", e)
            continue
        digest = hashlib.sha256(text.encode()).hexdigest()
        members = tuple(dict.fromkeys(m.partition("@")[0] for m in soup.members))
        facts = (_params(soup), _metrics(soup), _tags(soup), {SOUP_FILE: text})
        yield Average(recipe.parent.name, digest, created, members, *facts)


def _params(soup: Soup) -> dict[str, object]:
    shares = {f"share.{c['label']}": c["share"] for c in soup.candidates if c["share"] is not None}
    options = {f"option.{key}": value for key, value in soup.options.items()}
    what = {"method": soup.method, "candidates": _listed([c["label"] for c in soup.candidates])}
    return {**what, "dtype": soup.dtype or "as stored", "force": soup.force, **options, **shares}


def _metrics(soup: Soup) -> dict[str, float]:
    """The average's own scores without a prefix, its rivals' with their names."""
    metric = soup.metric or "score"
    found = _scored(f"test/{metric}", soup.scores[soup.method])
    for rival, score in soup.scores.items():
        if rival != soup.method:
            found |= _scored(f"test/{rival}/{metric}", score)
    found |= {"test/gain": soup.gain.mean}
    if soup.gain.error is not None:
        found |= {"test/gain_standard_error": soup.gain.error}
    if soup.rank_loss is not None:
        found |= {"rank_loss": soup.rank_loss}
    return found


def _scored(key: str, score: Score) -> dict[str, float]:
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
