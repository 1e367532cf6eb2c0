"""Soups: averages of a sweep's models, each compared with the best single model.

Wortsman et al. 2022, "Model soups" (arXiv 2203.05482). An average can be much worse than its
members, so a soup is promoted only if its gain is larger than the error of the evaluation.
"""

from results.averaging.soup.builder import BaseWeights, Recipe, make_soup
from results.averaging.soup.candidates import (
    Candidate,
    best_trials,
    federated_clients,
    last_checkpoints,
    named_trials,
    parse_weights,
)
from results.averaging.soup.scoring import (
    SOUP_FILE,
    Evaluator,
    ExampleScores,
    Score,
    Soup,
    read_soup,
)

__all__ = [
    "SOUP_FILE",
    "BaseWeights",
    "Candidate",
    "Evaluator",
    "ExampleScores",
    "Recipe",
    "Score",
    "Soup",
    "best_trials",
    "federated_clients",
    "last_checkpoints",
    "make_soup",
    "named_trials",
    "parse_weights",
    "read_soup",
]
