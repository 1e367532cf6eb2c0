"""Averages of models' weights: the arithmetic, and the way from file to file.

The contract that every method keeps (`tests/results/averaging/test_methods.py`): sums are in
float64 and rounded once; the result does not depend on the order of the models or on how much is
read at a time; NaN and infinities are refused by name; integers are never averaged.
"""

from results.averaging.method import METHODS, Method, make_method
from results.averaging.stream import Averaged, average

__all__ = ["METHODS", "Averaged", "Method", "average", "make_method"]
