import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainables.checkpointing.tensor_file import DTYPE_NAMES, tensor_bytes
from trainables.checkpointing.training_state import load_tree, save_tree

DTYPES = [*DTYPE_NAMES, torch.complex128]


def make_tensor(dtype: torch.dtype, shape: list[int], seed: int) -> torch.Tensor:
    values = np.random.default_rng(seed).integers(0, 100, size=shape)
    return torch.from_numpy(np.asarray(values)).to(dtype)


tensors = st.builds(
    make_tensor,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 1000),
)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text() | tensors
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return (a.dtype, a.shape, tensor_bytes(a)) == (b.dtype, b.shape, tensor_bytes(b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return repr(a) == repr(b)  # tells -0.0 from 0.0, and NaN is NaN
    return bool(a == b)


@given(tree=trees)
@settings(max_examples=60, derandomize=True)
def test_save_tree_round_trip(tree: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("tree")
    save_tree(folder, "state", tree)
    assert same(load_tree(folder, "state"), tree)


def test_save_tree_saves_tensors_that_share_memory(tmp_path: Path) -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    save_tree(tmp_path, "s", {"whole": whole, "row": whole[0], "turned": whole.T})
    loaded = load_tree(tmp_path, "s")
    assert torch.equal(loaded["turned"], whole.T)
    assert torch.equal(loaded["row"], whole[0])


@pytest.mark.parametrize("bad", [{1.5: 0}, {True: 0}, {"a": object()}, [np.float64(1)], {1, 2}])
def test_save_tree_refuses_other_types(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(TypeError, match="training state cannot hold"):
        save_tree(tmp_path, "s", bad)


def test_save_tree_restores_an_optimizer(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    weight.grad = torch.tensor([1.0, math.inf, -2.0])
    optimizer.step()
    save_tree(tmp_path, "s", optimizer.state_dict())
    other = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))], lr=0.5)
    other.load_state_dict(load_tree(tmp_path, "s"))
    assert same(other.state_dict(), optimizer.state_dict())
