"""One rank of some layouts, as a process of its own: trains models on them, and resumes others'.

    python -m tests.trainables.parallel.ranks RANK WORLD FOLDER CASE...

The case `llama/fsdp2` trains a model whole, and again up to a cut; `llama/one>fsdp2` goes on from
the cut on `one`. Their trials are folders of FOLDER, see `folder_of`.
"""

from __future__ import annotations

import gc
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from results.trial_paths import TrialPaths
from search_spaces.spec.layout import SHORTHANDS, LayoutSpec
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import RecordingChannel, run_trial
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.model import new_model, save_model
from trainables.data.text.dataset import prepare
from trainables.job import Answer
from trainables.registry import resolve
from tuning.controller.preflight.trainables import layout_problems

STEPS, CUT = 5, 2  # of the language models
DATA = {"max_bytes": 100_000}
LLAMA = {
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "sequence_length": 32,
    "batch_size": 8,
    "max_steps": STEPS,
    "eval_every": 1,
    "eval_sequences": 40,
    "data": DATA,
}
"""Gradients are clipped in some steps. 40 sequences are three batches, of which ranks have
different numbers."""
UNTIED = "untied"
"""Folder of a model, beside those of the trials, whose output is not its embedding."""
HALF = {
    **{k: v for k, v in LLAMA.items() if k not in ("hidden_size", "num_layers", "num_heads")},
    "model_name_or_path": UNTIED,
    "dtype": "bfloat16",
    "grad_clip": None,  # stages add their norms in another order
}
SFT = EXAMPLES["sft"].same
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("causal_lm", LLAMA),
    "micro": (
        "causal_lm",
        {**LLAMA, "micro_batch_size": 1, "activation_checkpointing": True, "optimizer": "lion"},
    ),
    "documents": ("causal_lm", {**LLAMA, "packing": "documents"}),
    "deep": (
        "causal_lm",
        {**LLAMA, "num_layers": 5, "activation_checkpointing": True, "packing": "documents"},
    ),
    # some experts get no token in some steps
    "moe": ("causal_lm", {**LLAMA, "experts": {"count": 4, "balance": 0.1}}),
    "moe_deep": (
        "causal_lm",
        {
            **LLAMA,
            "num_layers": 3,
            "experts": {"count": 8},
            "activation_checkpointing": True,
            "packing": "documents",
        },
    ),
    "moe_12": ("causal_lm", {**LLAMA, "num_layers": 12, "experts": {"count": 4, "balance": 0.1}}),
    "half": ("causal_lm", HALF),
    "half_micro": ("causal_lm", {**HALF, "micro_batch_size": 1}),
    # all experts compute each token, so that their use is balanced
    "moe_even": (
        "causal_lm",
        {**LLAMA, "experts": {"count": 4, "per_token": 4, "balance": 0.1}},
    ),
    "grpo": ("grpo", EXAMPLES["grpo"].same),
    # nine small steps: in more or larger ones, the input of a ReLU may be 0 up to rounding, and its
    # gradient, so the optimizer's state, another one on some layouts
    "image_classifier": (
        "image_classifier",
        {**EXAMPLES["image_classifier"].same, "batch_size": 512, "learning_rate": 0.02},
    ),
    "sft": ("sft", {**SFT, "pretrain": {**SFT["pretrain"], "num_heads": 2}}),
    "sft_deep": (
        "sft",
        {
            **SFT,
            "pretrain": {**SFT["pretrain"], "num_heads": 2, "num_layers": 2},
            "eval_answers": 0,
        },
    ),
    "lora": ("sft", {**EXAMPLES["sft"].config, "lora": {"rank": 2}}),
    "own": ("tests.trainables.parallel.own:Own", {}),
    "wide": ("tests.trainables.parallel.own:Wide", {}),
    "distill": ("distill", EXAMPLES["distill"].config),
    "student": ("distill", {**LLAMA, "teacher": {"hidden_size": 16, "max_steps": 1}}),
}
ONLY = {
    "moe_12": {"one", "pp3", "gpipe3", "interleaved2", "zero_bubble2"},
    "half": set(),  # its microbatches round
    "half_micro": set(),
    "student": set(),  # as `distill`
    "moe_even": {"one", "fsdp2", "ep2", "tp2xep2", "pp2", "gpipe2", "fsdp4xep2", "fsdp2xpp2xep2"},
}
"""Models that are for some layouts."""
LAYOUTS: dict[int, dict[str, dict[str, Any]]] = {
    1: {"one": SHORTHANDS["ddp"]},
    2: {
        "ddp2": SHORTHANDS["ddp"],
        "fsdp2": SHORTHANDS["fsdp"],
        "zero2": {"dp_shard": 2, "reshard_after_forward": False},
        "offload2": {"dp_shard": 2, "cpu_offload": True},
        "tp2": {"tp": 2},
        "sequence2": {"tp": 2, "sequence_parallel": True},
        "cp2": {"cp": 2},
        "ring2": {"cp": 2, "cp_method": "ring"},
        "pp2": {"pp": 2},
        "gpipe2": {"pp": 2, "schedule": "gpipe", "microbatches": 8},
        "interleaved2": {"pp": 2, "schedule": "interleaved"},
        "zero_bubble2": {"pp": 2, "schedule": "zero_bubble"},
        "ep2": {"dp_shard": 2, "ep": 2},
        "tp2xep2": {"tp": 2, "ep": 2},
        "cp2xep2": {"cp": 2, "ep": 2},
    },
    3: {
        "pp3": {"pp": 3, "microbatches": 4},
        "gpipe3": {"pp": 3, "microbatches": 4, "schedule": "gpipe"},
    },
    4: {
        "fsdp4": {"dp_shard": 4},
        "hsdp4": {"dp_replicate": 2, "dp_shard": 2},
        "tp4": {"tp": 4},
        "fsdp2xtp2": {"dp_shard": 2, "tp": 2},
        "ddp2xtp2": {"dp_replicate": 2, "tp": 2},
        "fsdp2xsequence2": {"dp_shard": 2, "tp": 2, "sequence_parallel": True},
        "ddp2xsequence2": {"dp_replicate": 2, "tp": 2, "sequence_parallel": True},
        "cp4": {"cp": 4},
        "ring4": {"cp": 4, "cp_method": "ring"},
        "fsdp2xcp2": {"dp_shard": 2, "cp": 2},
        "ddp2xcp2": {"dp_replicate": 2, "cp": 2},
        "cp2xtp2": {"cp": 2, "tp": 2},
        "cp2xsequence2": {"cp": 2, "tp": 2, "sequence_parallel": True},
        "ddp2xpp2": {"dp_replicate": 2, "pp": 2},
        "fsdp2xpp2": {"dp_shard": 2, "pp": 2},
        "fsdp2xinterleaved2": {"dp_shard": 2, "pp": 2, "schedule": "interleaved"},
        "tp2xpp2": {"tp": 2, "pp": 2},
        "ep4": {"dp_shard": 4, "ep": 4},
        "fsdp4xep2": {"dp_shard": 4, "ep": 2},
        "ddp2xep2": {"dp_replicate": 2, "dp_shard": 2, "ep": 2},
        "fsdp2xtp2xep2": {"dp_shard": 2, "tp": 2, "ep": 2},
        "fsdp2xtp2xep4": {"dp_shard": 2, "tp": 2, "ep": 4},
        "fsdp2xpp2xep2": {"dp_shard": 2, "pp": 2, "ep": 2},
        "tp2xpp2xep2": {"tp": 2, "pp": 2, "ep": 2, "schedule": "gpipe"},
    },
}
"""Number of ranks to the layouts of so many, by name."""


def fits(model: str, layout: str, world: int) -> bool:
    """Whether `tune plan` takes this model on this layout, and it is to be tested there."""
    if layout not in ONLY.get(model, {layout}):
        return False
    trainable, config = MODELS[model]
    spec = LayoutSpec.model_validate(LAYOUTS[world][layout])
    return not layout_problems(resolve(trainable), config, spec.resolve(world))


def folder_of(folder: Path, case: str, *, cut: bool = False) -> Path:
    """Folder of the trial of a case: that which is complete, or cut."""
    return folder / (case.replace("/", "_").replace(">", "_to_") + "_cut" * cut)


def train(
    folder: Path, model: str, layout: str, rank: int, world: int, **options: Any
) -> RecordingChannel:
    """Train one model on one rank; returns the channel of its reports."""
    trainable, config = MODELS[model]
    if "model_name_or_path" in config:
        config = {**config, "model_name_or_path": str(folder.parent / UNTIED)}
    spec = LayoutSpec.model_validate(LAYOUTS[world][layout])
    given = {"layout": spec, "cache": folder.parent / "cache", **options}
    return run_trial(folder, trainable, config, rank=rank, world_size=world, **given)


def write_untied(folder: Path) -> None:
    """Write the model `UNTIED` for the cases of a folder."""
    config = CausalLMConfig.model_validate(LLAMA)
    data = prepare(config, folder / "cache")
    model: Any = new_model(config, data)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    (folder / UNTIED).mkdir()
    save_model(model, config, data, folder / UNTIED)


def run(folder: Path, case: str, rank: int = 0, world: int = 1) -> None:
    """Run one case on one rank."""
    model, _, layouts = case.partition("/")
    before, _, layout = layouts.rpartition(">")
    if not before:
        train(folder_of(folder, case), model, layout, rank, world)
        cut = RecordingChannel({CUT: Answer.STOP})
        train(folder_of(folder, case, cut=True), model, layout, rank, world, channel=cut)
        return
    begun = TrialPaths(folder_of(folder, f"{model}/{before}", cut=True))
    paths = TrialPaths(folder_of(folder, case))
    if rank == 0:
        paths.checkpoints.mkdir(parents=True)
        paths.checkpoint(CUT).symlink_to(begun.checkpoint(CUT))
    if world > 1:
        dist.barrier()
    train(paths.root, model, layout, rank, world, attempt=2)


def main(rank: int, world: int, folder: Path, *cases: str) -> None:
    torch.set_num_threads(1)
    store, timeout = f"file://{folder / f'rendezvous_{world}'}", timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timeout)
    for case in cases:
        run(folder, case, rank, world)
        gc.collect()  # as a lane does: groups in reference cycles keep their threads
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
