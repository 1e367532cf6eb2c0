from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from trainables.checkpointing.tensor_file import DTYPE_NAMES, write_tensors

DTYPES = list(DTYPE_NAMES)


def of(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    size = torch.empty(shape, dtype=dtype).nbytes
    raw = torch.randint(0, 2, (size,), generator=torch.Generator().manual_seed(0))
    return raw.to(torch.uint8).view(dtype).reshape(shape)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    raw = [t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)


@pytest.mark.parametrize("shape", [(3, 2), (1, 5), (0, 4)])
def test_write_tensors_equals_safetensors_for_each_dtype(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    tensors = {f"{i % 3}.{dtype}": of(dtype, *shape) for i, dtype in enumerate(DTYPES)}
    write_tensors(tmp_path / "f", tensors)
    assert (tmp_path / "f").read_bytes() == save(tensors)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"scalar": torch.tensor(1.5)},
        {"b": torch.arange(5.0), 'a.ü"\\\n': torch.arange(3), "B": torch.zeros(())},
        {"large": torch.arange(2**20), "small": torch.ones(3, dtype=torch.bool)},
        {"empty": torch.ones(()).expand(0), "of no rows": torch.ones(0, 3)},
        {"parameter": torch.nn.Parameter(torch.ones(2, 3))},
    ],
    ids=["none", "scalar", "names", "large", "empty", "parameter"],
)
@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_write_tensors_equals_safetensors_for_each_layout(
    tmp_path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None
) -> None:
    write_tensors(tmp_path / "f", tensors, metadata)
    assert (tmp_path / "f").read_bytes() == save(tensors, metadata)


def test_write_tensors_saves_views_and_shared_memory(tmp_path: Path) -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    views = {"whole": whole, "turned": whole.T, "some": whole[1:, ::2], "same": whole}
    write_tensors(tmp_path / "f", views)
    loaded = load_file(tmp_path / "f")
    assert sorted(loaded) == sorted(views)
    assert all(same_bits(loaded[name], view) for name, view in views.items())


def test_write_tensors_refuses_a_dtype_without_a_format_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'z': it is torch\.complex128"):
        write_tensors(tmp_path / "f", {"z": torch.zeros(1, dtype=torch.complex128)})
    assert list(tmp_path.iterdir()) == []
