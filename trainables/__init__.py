"""The training of one trial. Import from here what your own trainable needs.

Each name is imported when it is first used, because most of these modules import torch.
A package of tune-platform.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.base import Split as Split
    from trainables.base import Trainable as Trainable
    from trainables.checkpointing.saver import DeferredWrite as DeferredWrite
    from trainables.checkpointing.saver import SaveFn as SaveFn
    from trainables.checkpointing.saver import in_parallel as in_parallel
    from trainables.checkpointing.tensor_file import write_tensors as write_tensors
    from trainables.checkpointing.training_state import copy_tree as copy_tree
    from trainables.checkpointing.training_state import copy_weights as copy_weights
    from trainables.checkpointing.training_state import load_tree as load_tree
    from trainables.checkpointing.training_state import save_tree as save_tree
    from trainables.client import Client as Client
    from trainables.client import Rows as Rows
    from trainables.config import TrainableConfig as TrainableConfig
    from trainables.job import Answer as Answer
    from trainables.job import Channel as Channel
    from trainables.job import TrialJob as TrialJob
    from trainables.parallel.footprint import RankMemory as RankMemory
    from trainables.parallel.fsdp import gathered as gathered
    from trainables.parallel.fsdp import shard as shard
    from trainables.parallel.sharded_state import clip_gradients as clip_gradients
    from trainables.parallel.sharded_state import load_weights as load_weights
    from trainables.registry import resolve as resolve
    from trainables.runtime.preemption import Preempted as Preempted
    from trainables.runtime.seeding import isolated_rng as isolated_rng
    from trainables.runtime.seeding import seed_everything as seed_everything
    from trainables.training.checkpoint import copy_model as copy_model
    from trainables.training.checkpoint import copy_progress as copy_progress
    from trainables.training.checkpoint import load_progress as load_progress
    from trainables.training.checkpoint import read_lineage as read_lineage
    from trainables.training.checkpoint import weights_digest as weights_digest
    from trainables.training.data_sampler import Sampler as Sampler
    from trainables.training.data_sampler import shares as shares
    from trainables.training.data_sampler import shares_in_step as shares_in_step
    from trainables.training.gradients import backward as backward
    from trainables.training.gradients import data_parallel as data_parallel
    from trainables.worker import Worker as Worker

_NAMES = {
    "base": "Split Trainable",
    "checkpointing.saver": "DeferredWrite SaveFn in_parallel",
    "checkpointing.tensor_file": "write_tensors",
    "checkpointing.training_state": "copy_tree copy_weights load_tree save_tree",
    "client": "Client Rows",
    "config": "TrainableConfig",
    "job": "Answer Channel TrialJob",
    "parallel.footprint": "RankMemory",
    "parallel.fsdp": "gathered shard",
    "parallel.sharded_state": "clip_gradients load_weights",
    "registry": "resolve",
    "runtime.preemption": "Preempted",
    "runtime.seeding": "isolated_rng seed_everything",
    "training.checkpoint": "copy_model copy_progress load_progress read_lineage weights_digest",
    "training.data_sampler": "Sampler shares shares_in_step",
    "training.gradients": "backward data_parallel",
    "worker": "Worker",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'trainables' has no attribute '{name}'")
    found = getattr(import_module(f"trainables.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
