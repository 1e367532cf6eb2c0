"""`soup.json`: the models in a soup, the settings of the average, and its scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from results.averaging.soup.scoring import Gain, Score
from search_spaces.errors import UserError

SOUP_FILE = "soup.json"


class Soup(BaseModel):
    """The content of `soup.json`.

    Attributes:
        metric: by which models were compared.
        members: labels of the candidates that are in the soup.
        single: label of the candidate that is best on the selection split.
        candidates: for each candidate considered: label, value, checkpoint, SHA-256, share, and the
            digest of the weights from which it started.
        scores: on the test split, of `single`, `uniform`, `greedy`, and the method.
        gain: of the soup over the single candidate.
        promoted: whether the gain is significant.
        dtype: format of the floats; None keeps the format of each tensor.
        rank_loss: part of the LoRA updates' norm that the rank could not hold.
        force: whether models of different or unknown starts were allowed.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    metric: str = ""
    method: str
    options: dict[str, Any]
    members: tuple[str, ...]
    single: str
    candidates: tuple[dict[str, Any], ...]
    scores: dict[str, Score]
    gain: Gain
    promoted: bool
    dtype: str | None = None
    rank_loss: float | None = None
    force: bool = False

    @property
    def trial_id(self) -> str:
        """The trial whose configuration the model has."""
        return self.members[0].partition("@")[0]


def read_soup(folder: Path) -> Soup:
    """Read the record of a soup.

    Raises:
        UserError: the folder holds no soup.
    """
    try:
        return Soup.model_validate_json((folder / SOUP_FILE).read_bytes())
    except (OSError, ValidationError) as e:
        raise UserError(f"{folder}: no soup ({SOUP_FILE} is missing or damaged)") from e
