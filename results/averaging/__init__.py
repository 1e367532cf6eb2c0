"""Average the weights of models: methods, and arithmetic from file to file.

Rules that every method keeps (`tests/results/averaging/test_methods.py`):

- Sums are in float64, and rounded once to the format of the result.
- The result does not depend on the order of the models, the piece size or the number of threads.
- The mean of copies of one model is that model, bit for bit, for any weights.
- A NaN or an infinity is refused, by the name of the tensor.
- Tensors that are not float64, float32, float16 or bfloat16 (masks, quantised blocks) are not
  averaged: they must be equal in all models. The result has the largest of BatchNorm's counters.
- For LoRA factors, the updates B A are averaged (see `adapters`).
"""

from results.averaging.method import METHODS, Method, make_method
from results.averaging.stack import Stack
from results.averaging.stream import Averaged, average

__all__ = ["METHODS", "Averaged", "Method", "Stack", "average", "make_method"]
