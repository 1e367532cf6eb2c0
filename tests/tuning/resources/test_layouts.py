"""Layouts of `resources.layout: auto`: what fits, and what is taken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from search_spaces.layout import AXES, Layout
from search_spaces.spec.resources import ResourcesSpec
from tests.tuning.simulate import make_spec
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.experts import ExpertsConfig
from trainables.causal_lm.trainable import CausalLM
from tuning.controller.resources.layouts import Choice, choice_of, layouts_of
from tuning.controller.resources.worker_memory import WorkerMemory, worker_memory

GIB = 2**30
CONFIGS = st.fixed_dictionaries(
    {
        "hidden_size": st.sampled_from([64, 256, 1024]),
        "num_layers": st.sampled_from([2, 8]),
        "num_heads": st.sampled_from([4, 8]),
        "vocab_size": st.sampled_from([512, 32_000]),
        "sequence_length": st.sampled_from([64, 1024]),
        "batch_size": st.sampled_from([8, 24, 64]),
        "dtype": st.sampled_from(["float32", "bfloat16"]),
        "packing": st.sampled_from(["plain", "documents"]),
        "activation_checkpointing": st.booleans(),
        "optimizer": st.sampled_from(["adamw", "lion"]),
        "experts": st.sampled_from([None, {"count": 4}, {"count": 8, "per_token": 1}]),
    }
)


def choice(config: dict[str, Any], memory: int, workers: object) -> Choice:
    spec = make_spec(
        trainable="causal_lm",
        resources={"workers": workers, "layout": "auto", "memory_per_worker": 1},
    )
    return choice_of(spec, config, WorkerMemory(memory, on_gpu=False))


@given(
    config=CONFIGS,
    workers=st.sampled_from([2, 3, 4, 8, {"min": 1, "max": 4}]),
    memory=st.integers(1, 8 * GIB),
    more=st.integers(1, 8 * GIB),
)
def test_laws_of_a_choice(config: dict[str, Any], workers: object, memory: int, more: int) -> None:
    less, enough = choice(config, memory, workers), choice(config, memory + more, workers)
    assert {one.layout for one in less.fitting} <= {one.layout for one in enough.fitting}
    if less.taken is not None:
        assert less.taken.memory.peak <= memory
        assert enough.taken is not None
        assert enough.taken.ranks >= less.taken.ranks
        if enough.taken.ranks == less.taken.ranks:
            assert enough.taken.layout.model_parallel <= less.taken.layout.model_parallel
    elif less.nearest is not None:
        assert less.nearest.memory.peak > memory


@given(config=CONFIGS, workers=st.sampled_from([1, 2, 4, 6, 8]))
def test_every_layout_that_is_listed_works(config: dict[str, Any], workers: int) -> None:
    checked = CausalLMConfig.model_validate(config)
    found = [one.layout for one in layouts_of(checked, CausalLM.axes, workers, on_gpu=False)]
    assert len(set(found)) == len(found)
    for layout in found:
        assert layout.num_ranks == workers
        assert CausalLM().layout_problems(config, layout) == []
    parallel = [layout.model_parallel for layout in found]
    assert parallel == sorted(parallel)


def test_order_of_preference() -> None:
    config = CausalLMConfig(num_layers=4, num_heads=4, batch_size=32)
    found = list(layouts_of(config, CausalLM.axes, 4, on_gpu=False))
    assert [one.layout.as_written() for one in found][:6] == [
        "{dp_replicate: 4}",
        "{dp_shard: 4}",
        "{dp_replicate: 2, dp_shard: 2}",
        "{dp_replicate: 2, tp: 2}",
        "{pp: 2, dp_replicate: 2}",
        "{dp_replicate: 2, cp: 2}",
    ]
    only = layouts_of(config, ("dp_replicate", "dp_shard"), 4, on_gpu=False)
    assert [one.layout for one in only] == [one.layout for one in found[:3]]


def test_ranks_that_share_experts_come_after_those_that_gather_them() -> None:
    experts = ExpertsConfig(count=4)
    config = CausalLMConfig(intermediate_size=4096, batch_size=32, experts=experts)
    found = list(layouts_of(config, ("dp_replicate", "dp_shard", "ep"), 4, on_gpu=False))
    assert [one.layout.as_written() for one in found] == [
        "{dp_replicate: 4}",
        "{dp_shard: 4}",
        "{dp_shard: 4, ep: 2}",
        "{dp_shard: 4, ep: 4}",
        "{dp_replicate: 2, dp_shard: 2}",
        "{dp_replicate: 2, dp_shard: 2, ep: 2}",
    ]
    gathered, some, own = (one.memory.peak for one in found[1:4])
    assert gathered > some > own


def test_cut_sequences_come_after_whole_ones() -> None:
    config = CausalLMConfig(num_layers=8, batch_size=4, activation_checkpointing=True)
    found = list(layouts_of(config, ("tp", "pp"), 2, on_gpu=False, cuts_sequences=True))
    assert [one.layout.as_written() for one in found] == [
        "{tp: 2}",
        "{tp: 2, sequence_parallel: true}",
        "{pp: 2}",
    ]
    assert found[1].memory.peak < found[0].memory.peak


def test_more_ranks_that_share_the_weights_need_less() -> None:
    config = {"hidden_size": 1024, "num_layers": 8, "batch_size": 8}
    found = {one.layout: one.memory for one in choice(config, 1, 4).sized}
    shards = [found[Layout(dp_replicate=4 // n, dp_shard=n)] for n in (1, 2, 4)]
    assert [m.weights for m in shards] == sorted((m.weights for m in shards), reverse=True)
    assert [m.peak for m in shards] == sorted((m.peak for m in shards), reverse=True)


def test_none_fits() -> None:
    found = choice({"hidden_size": 256, "num_layers": 2}, 10 * 2**20, {"min": 1, "max": 2})
    assert found.taken is None
    assert found.problem.startswith("no layout of 1 to 2 workers fits the 10 MiB of a worker; ")
    assert "nearest: {pp: 2}, which needs" in found.problem


def test_memory_of_a_worker() -> None:
    given = ResourcesSpec(workers=2, layout="auto", memory_per_worker=1.5)
    assert worker_memory(given) == WorkerMemory(1.5 * GIB, on_gpu=False)
    shared = given.model_copy(update={"gpus_per_worker": 0.5})
    assert worker_memory(shared) == WorkerMemory(1.5 * GIB, on_gpu=True)
    none = ResourcesSpec(workers=2, layout="auto", gpus_per_worker=0)
    assert worker_memory(none) is None
    with pytest.raises(ValidationError, match="an effect only with layout: auto"):
        ResourcesSpec(workers=2, memory_per_worker=1)


def test_axes_are_those_of_the_trainable() -> None:
    assert {*CausalLM.axes} <= {*AXES, "ep"}
