"""Average LoRA adapters: the mean of the updates B A, not the product of the means of A and B.

The mean of updates of rank r has a higher rank. Where all models share one factor the mean is
exact; elsewhere the result is the nearest update of the same rank (truncated SVD, Eckart and Young
1936), computed from the small factors, and `rank_loss` is the part that is lost. The result has the
tensor names and shapes of its sources, so it loads wherever they do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from results.averaging.method import Method
from results.averaging.numerics import STORED, Floats, narrow
from results.averaging.stack import FileStack, ModelFiles, ReadBuffers
from results.checkpoints.tensor_layout import PlannedTensor, TensorLayout
from search_spaces.errors import UserError

_FACTOR = re.compile(r"(.*\blora_)(A|B|embedding_A|embedding_B)(\..+)?")
_OTHER = re.compile(r"lora_magnitude_vector|lora_[AB](\.\w+)?\.bias|vera_lambda|lokr_|hada_")
"""Parts of adapters whose update is not a plain product: DoRA, biases, LoKr, LoHa, VeRA."""


class Adapters:
    """The pairs (A, B) of a model, by name, and their mean.

    Raises:
        UserError: a factor without its partner, an adapter whose update is not a plain product, or
            a method that is not a mean.
    """

    def __init__(
        self,
        models: ModelFiles,
        plan: Mapping[str, PlannedTensor],
        method: Method,
        max_memory: int,
    ) -> None:
        self._models, self._plan, self._max_memory = models, plan, max_memory
        first = models.layouts[0]
        self._pairs = _pairs(first)
        self._finished: dict[str, bytes] = {}
        self._lost = self._whole = 0.0
        if self._pairs and not method.linear:
            raise UserError(
                f"{first.path}: LoRA adapters have a mean of their updates; method "
                f"{method.name()} would act on the factors A and B separately"
            )

    @property
    def names(self) -> frozenset[str]:
        """Names of the tensors that are factors."""
        return frozenset(self._pairs)

    @property
    def rank_loss(self) -> float | None:
        """Part of the updates' Frobenius norm that was lost so far; None without adapters."""
        return math.sqrt(self._lost / self._whole) if self._whole else 0.0 if self._pairs else None

    def tensor(self, name: str) -> bytes:
        """Bytes of one factor of the result; those of its partner are kept for the next call."""
        if name not in self._finished:
            a, b = self._pairs[name]
            for factor, values in zip((a, b), self._mean(a, b), strict=True):
                rounded = narrow(values.reshape(-1), self._plan[factor].dtype)
                if rounded is None:
                    raise UserError(f"the average of tensor '{factor}' overflows")
                self._finished[factor] = rounded.tobytes()
        return self._finished.pop(name)

    def _mean(self, a: str, b: str) -> tuple[Floats, Floats]:
        import numpy as np

        downs, ups, shares = self._read_all(a), self._read_all(b), self._models.shares
        if all(np.array_equal(d, downs[0]) for d in downs[1:]):
            return downs[0], _mean_of(ups, shares)
        if all(np.array_equal(u, ups[0]) for u in ups[1:]):
            return _mean_of(downs, shares), ups[0]
        rank = downs[0].shape[0]
        weighted = [s * up.reshape(len(up), rank) for s, up in zip(shares, ups, strict=True)]
        left = np.concatenate(weighted, axis=1)
        right = np.concatenate([d.reshape(rank, -1) for d in downs], axis=0)
        up, down, lost, whole = _truncated(left, right, rank)
        self._lost, self._whole = self._lost + lost, self._whole + whole
        return down.reshape(downs[0].shape), up.reshape(ups[0].shape)

    def _read_all(self, name: str) -> list[Floats]:
        models = len(self._models.layouts)
        tensor = self._models.layouts[0].tensors[name]
        needed = 8 * tensor.size * (3 * models + 2)
        if needed > self._max_memory:
            raise UserError(
                f"the mean of LoRA factor '{name}' needs {needed / 1e6:.0f} MB of memory, but "
                f"the limit is {self._max_memory / 1e6:.0f} MB"
            )
        with FileStack(name, self._models, ReadBuffers(tensor.size)) as stack:
            whole = slice(0, tensor.size)
            return [stack.value(m, whole).copy().reshape(tensor.shape) for m in range(models)]


def _pairs(layout: TensorLayout) -> dict[str, tuple[str, str]]:
    """Name of either factor → names of A and B."""
    pairs: dict[str, tuple[str, str]] = {}
    for name, tensor in layout.tensors.items():
        found = _FACTOR.fullmatch(name)
        if _OTHER.search(name) or (found and tensor.dtype not in STORED):
            raise UserError(
                f"{layout.path}: '{name}' belongs to an adapter that cannot be averaged"
            )
        if found is None:
            continue
        kind = found[2]
        partner = f"{found[1]}{kind[:-1]}{'B' if kind[-1] == 'A' else 'A'}{found[3] or ''}"
        if partner not in layout.tensors:
            raise UserError(f"{layout.path}: LoRA factor '{name}' has no partner '{partner}'")
        a, b = (name, partner) if kind[-1] == "A" else (partner, name)
        if layout.tensors[a].shape[0] != layout.tensors[b].shape[1]:
            raise UserError(f"{layout.path}: LoRA factors '{a}' and '{b}' differ in rank")
        pairs[name] = (a, b)
    return pairs


def _mean_of(values: Sequence[Floats], shares: Sequence[float]) -> Floats:
    """The first value plus the mean of the differences from it."""
    first = values[0]
    result: Floats = first + sum(s * (v - first) for v, s in zip(values, shares, strict=True))
    return result


def _truncated(left: Floats, right: Floats, rank: int) -> tuple[Floats, Floats, float, float]:
    """Nearest product of that rank to `left @ right`.

    Returns:
        Up, down, the squared norm of what was lost, and the squared norm of the whole.
    """
    import numpy as np

    q_left, r_left = np.linalg.qr(left)
    q_right, r_right = np.linalg.qr(right.T)
    u, s, vt = np.linalg.svd(r_left @ r_right.T)
    root = np.sqrt(s[:rank])
    up = q_left @ (u[:, :rank] * root)
    down = (root[:, None] * vt[:rank]) @ q_right.T
    return up, down, float(np.sum(s[rank:] ** 2)), float(np.sum(s**2))
