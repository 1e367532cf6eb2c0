from __future__ import annotations

import pytest

from trainables.parallel.pipeline import layers_of_stages


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"), [(4, 2, [2, 2]), (5, 3, [2, 2, 1]), (3, 3, [1, 1, 1])]
)
def test_stages_have_all_layers_in_order(layers: int, stages: int, sizes: list[int]) -> None:
    found = layers_of_stages(layers, stages)
    assert list(map(len, found)) == sizes
    assert [layer for part in found for layer in part] == list(range(layers))
