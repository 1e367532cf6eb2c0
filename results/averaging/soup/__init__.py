"""Soups: averages of a sweep's models, each compared with the best single model.

Wortsman et al. 2022, "Model soups" (arXiv 2203.05482). An average can be much worse than its
members, so a soup is promoted only if its gain is larger than the error of the evaluation.
"""
