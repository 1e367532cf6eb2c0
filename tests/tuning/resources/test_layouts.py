"""Layouts of `resources.layout: auto`: what fits, and what is taken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from search_spaces.spec.resources import ResourcesSpec
from tests.tuning.simulate import make_spec
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.trainable import CausalLM
from tuning.controller.preflight.trainables import layout_problems
from tuning.controller.resources.layouts import (
    Choice,
    WorkerMemory,
    choice_of,
    layouts_of,
    worker_memory,
)

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
    assert less.taken or all(one.memory.peak > memory for one in less.estimates)


@given(config=CONFIGS, workers=st.sampled_from([1, 2, 4, 6, 8]))
def test_every_layout_that_is_listed_works(config: dict[str, Any], workers: int) -> None:
    checked = CausalLMConfig.model_validate(config)
    found = [one.layout for one in layouts_of(checked, CausalLM.axes, workers, on_gpu=False)]
    assert len(set(found)) == len(found)
    for layout in found:
        assert layout.num_ranks == workers
        assert layout_problems(CausalLM(), config, layout) == []
    parallel = [layout.model_parallel for layout in found]
    assert parallel == sorted(parallel)


@pytest.mark.parametrize(
    ("config", "axes", "workers", "expected"),
    [
        (
            {"num_layers": 4, "num_heads": 4, "batch_size": 32},
            CausalLM.axes,
            4,
            [
                "{dp_replicate: 4}",
                "{dp_shard: 4}",
                "{dp_replicate: 2, dp_shard: 2}",
                "{dp_replicate: 2, tp: 2}",
                "{pp: 2, dp_replicate: 2}",
                "{dp_replicate: 2, cp: 2}",
            ],
        ),
        (
            {"intermediate_size": 4096, "batch_size": 32, "experts": {"count": 4}},
            ("dp_replicate", "dp_shard", "ep"),
            4,
            [
                "{dp_replicate: 4}",
                "{dp_shard: 4}",
                "{dp_shard: 4, ep: 2}",
                "{dp_shard: 4, ep: 4}",
                "{dp_replicate: 2, dp_shard: 2}",
                "{dp_replicate: 2, dp_shard: 2, ep: 2}",
            ],
        ),
        (
            {"num_layers": 8, "batch_size": 4, "activation_checkpointing": True},
            ("tp", "pp"),
            2,
            ["{tp: 2}", "{tp: 2, sequence_parallel: true}", "{pp: 2}"],
        ),
    ],
    ids=["all axes", "experts", "sequences"],
)
def test_order_of_preference(
    config: dict[str, Any], axes: tuple[str, ...], workers: int, expected: list[str]
) -> None:
    checked, cuts = CausalLMConfig.model_validate(config), axes == ("tp", "pp")
    listed = list(layouts_of(checked, axes, workers, on_gpu=False, cuts_sequences=cuts))
    names = [one.layout.as_written() for one in listed]
    assert names[:6] == expected
    peaks = [one.memory.peak for one in listed]
    if "experts" in config:
        assert peaks[1] > peaks[2] > peaks[3], "ranks that share experts gather fewer"
    if cuts:
        assert peaks[1] < peaks[0]


def test_memory_of_a_worker() -> None:
    given = ResourcesSpec(workers=2, layout="auto", memory_per_worker=1.5)
    assert worker_memory(given) == WorkerMemory(1.5 * GIB, on_gpu=False)
    shared = given.model_copy(update={"gpus_per_worker": 0.5})
    assert worker_memory(shared) == WorkerMemory(1.5 * GIB, on_gpu=True)
    none = ResourcesSpec(workers=2, layout="auto", gpus_per_worker=0)
    assert worker_memory(none) is None
    with pytest.raises(ValidationError, match="an effect only with layout: auto"):
        ResourcesSpec(workers=2, memory_per_worker=1)
