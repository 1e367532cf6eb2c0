"""Average the weights of models: methods, and arithmetic from file to file.

Rules that every method keeps (`tests/results/averaging/test_methods.py`):

- Sums are in float64, and rounded once to the format of the result.
- The result does not depend on the order of the models, the piece size or the number of threads.
- The mean of copies of one model is that model, bit for bit, for any weights.
- A NaN or an infinity is refused, by the name of the tensor.
- Tensors that are not float64, float32, float16 or bfloat16 (masks, quantised blocks) have no mean:
  they must be equal in all models. Of BatchNorm's counters the largest is taken.
- LoRA factors are averaged as the updates that they stand for (see `adapters`).
"""

from results.averaging.method import METHODS, Method, make_method
from results.averaging.stack import Stack
from results.averaging.stream import Averaged, average

__all__ = ["METHODS", "Averaged", "Method", "Stack", "average", "make_method"]
