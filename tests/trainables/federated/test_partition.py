from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.trainables.federated.tiny import config
from trainables.federated.partition import partition_rows

LABELS = np.repeat(np.arange(10), 100)


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "groups"])
@pytest.mark.parametrize("clients", [1, 4, 7])
def test_partition_gives_each_row_to_one_client(partition: str, clients: int) -> None:
    made = config(partition=partition, clients=clients, alpha=0.05)
    shards = partition_rows(made, 1000, lambda by: LABELS)
    assert sorted(np.concatenate(shards)) == list(range(1000))
    assert all(len(shard) for shard in shards)
    again = partition_rows(made, 1000, lambda by: LABELS)
    assert all((a == b).all() for a, b in zip(shards, again, strict=True))


def test_deal_is_as_uneven_as_configured() -> None:
    def spread(**changes: Any) -> float:
        """Mean over clients of the part of its most frequent label."""
        shards = partition_rows(config(clients=5, **changes), 1000, lambda by: LABELS)
        return float(np.mean([np.bincount(LABELS[s]).max() / len(s) for s in shards]))

    even = spread(partition="iid")
    mild, strong = (spread(partition="dirichlet", alpha=a) for a in (10.0, 0.05))
    assert even < 0.2
    assert even < mild < strong
    shards = partition_rows(config(clients=5, partition="groups"), 1000, lambda by: LABELS)
    assert [len(np.unique(LABELS[s])) for s in shards] == [2] * 5
    with pytest.raises(ValueError, match="2 examples cannot be dealt to 3 clients"):
        partition_rows(config(), 2, lambda by: LABELS)
