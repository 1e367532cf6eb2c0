"""Soups: averages of a sweep's models, each judged beside the best single one.

Wortsman et al. 2022, "Model soups" (arXiv 2203.05482). An average can be much worse than its
members, so none is recommended that is not better by more than the evaluation can err.
"""

from results.averaging.soup.builder import Recipe, Soup, Start, make_soup, read_soup
from results.averaging.soup.candidates import (
    LINEAGE,
    Candidate,
    best,
    checkpoints,
    clients,
    named,
    weights,
)
from results.averaging.soup.scoring import Evaluator, Examples, Score

__all__ = [
    "LINEAGE",
    "Candidate",
    "Evaluator",
    "Examples",
    "Recipe",
    "Score",
    "Soup",
    "Start",
    "best",
    "checkpoints",
    "clients",
    "make_soup",
    "named",
    "read_soup",
    "weights",
]
