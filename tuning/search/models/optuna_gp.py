"""Optuna's Gaussian process, with one thread."""

from __future__ import annotations

from typing import Any

from optuna.samplers import GPSampler
from threadpoolctl import threadpool_limits


class OneThreadGPSampler(GPSampler):
    """A proposal takes half the processor time, and does not wait for busy processors; see
    `tuning.search.models.threads`.
    """

    def sample_relative(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """As in `GPSampler`."""
        import torch  # noqa: F401  # its threads are limited if it is there

        with threadpool_limits(1):
            return super().sample_relative(*args, **kwargs)
