"""Hyperparameters of `federated`: the clients, the server, and the training of one client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from trainables.config import Problem, TrainableConfig, nested_config
from trainables.training.communication.config import DataParallelConfig

SERVER_RATES = {
    "fedavg": 1.0,
    "fedavgm": 1.0,
    "fedadagrad": 0.03,
    "fedadam": 0.01,
    "fedyogi": 0.01,
    "diloco": 0.7,
}
"""Default step sizes of the server."""


class FederatedConfig(TrainableConfig):
    """Hyperparameters of federated training."""

    task: str = Field("digits", description="trainable that each client runs: digits, causal_lm")
    client: dict[str, Any] = Field(
        default_factory=dict,
        description="hyperparameters of `task`; its training has rounds x local_steps steps",
    )
    clients: int = Field(8, gt=0, description="shards of the train split")
    partition: Literal["iid", "dirichlet", "groups"] = Field(
        "iid",
        description="iid: at random; dirichlet: each label or source in random shares"
        " (Hsu et al. 2019); groups: each label or source to one client",
    )
    by: Literal["label", "source"] = Field(
        "label", description="property by which dirichlet and groups divide"
    )
    alpha: float = Field(0.5, gt=0, description="of dirichlet: smaller is more uneven")
    partition_seed: int = Field(0, ge=0, description="seed of the partition")
    rounds: int = Field(10, gt=0, description="times that the server averages")
    local_steps: int = Field(10, gt=0, description="optimizer steps of a client in a round")
    participation: float = Field(1.0, gt=0, le=1, description="fraction of the clients in a round")
    drop_out: float = Field(
        0.0, ge=0, lt=1, description="probability that a client fails to answer"
    )
    proximal: float = Field(
        0.0, ge=0, description="FedProx's pull towards the server's weights (Li et al. 2020)"
    )
    keep_optimizer: bool = Field(
        False, description="clients keep their optimizer's state between rounds, as in DiLoCo"
    )
    keep_clients: bool = Field(
        False, description="checkpoints also hold each client's model, for tune average --clients"
    )
    aggregation: Literal[
        "weighted",
        "uniform",
        "median",
        "trimmed_mean",
        "task_arithmetic",
        "ties",
        "dare_linear",
        "dare_ties",
    ] = Field("weighted", description="method of averaging; weighted is by number of examples")
    aggregation_options: dict[str, float] = Field(
        default_factory=dict, description="of the method, such as trim or density"
    )
    server: Literal["fedavg", "fedavgm", "fedadagrad", "fedadam", "fedyogi", "diloco"] = Field(
        "fedavg", description="optimizer that applies the average update"
    )
    server_learning_rate: float | None = Field(
        None,
        gt=0,
        description="its step size; null: 1, 1, 0.03, 0.01, 0.01, 0.7 in `server`'s order",
    )
    server_momentum: float = Field(0.9, ge=0, lt=1, description="fedavgm, diloco; others' beta1")
    server_beta2: float = Field(0.99, ge=0, lt=1, description="fedadam, fedyogi: of the squares")
    server_tau: float = Field(1e-3, gt=0, description="fedadagrad, fedadam, fedyogi: adaptivity")

    @model_validator(mode="after")
    def _fits_together(self) -> FederatedConfig:
        inner = nested_config(_task_config(self.task), self.client, "client")
        if isinstance(inner, DataParallelConfig) and inner.communication.hooked:
            raise ValueError("client.communication: clients exchange weights, not gradients")
        return self

    @property
    def inner(self) -> Any:
        """The task's configuration."""
        return _task_config(self.task).model_validate(self.client)

    @property
    def num_parameters(self) -> int | None:
        """Weights of the task's model."""
        found: int | None = getattr(self.inner, "num_parameters", None)
        return found

    def missing_files(self) -> list[Problem]:
        """Those of the task."""
        return [(("client", *path), problem) for path, problem in self.inner.missing_files()]

    @property
    def rate(self) -> float:
        """The server's step size."""
        return self.server_learning_rate or SERVER_RATES[self.server]

    @classmethod
    def with_init_seed(cls, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """Set the task's `init_seed`, unless it is given."""
        model = _task_config(config.get("task", "digits"))
        return {**config, "client": model.with_init_seed(dict(config.get("client", {})), seed)}

    @classmethod
    def for_new_sweep(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Add the task's new defaults."""
        return _with_client(config, lambda model, client: model.for_new_sweep(client))

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Resolve the task's relative paths."""
        return _with_client(config, lambda model, client: model.resolve_paths(client, folder))


def _with_client(
    config: dict[str, Any],
    change: Callable[[type[TrainableConfig], dict[str, Any]], dict[str, Any]],
) -> dict[str, Any]:
    """A configuration whose `client` is changed by the task's rules, if it has both."""
    task, client = config.get("task", "digits"), config.get("client")
    if not isinstance(client, dict) or not isinstance(task, str):
        return config
    try:
        model = _task_config(task)
    except ValueError:  # the mistake is named when the configuration is checked
        return config
    return {**config, "client": change(model, client)}


def _task_config(task: str) -> type[TrainableConfig]:
    from search_spaces.errors import UserError
    from trainables.registry import resolve

    try:
        trainable = resolve(task)
        if not trainable.offers("client"):
            raise UserError(f"task {task}: not a trainable with clients, like digits or causal_lm")
        return trainable.Config
    except UserError as e:
        raise ValueError(str(e)) from e
