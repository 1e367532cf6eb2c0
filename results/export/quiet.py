"""Keep third-party libraries from writing to the terminal while they load or export a model."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_EXPORTERS = ("torch.onnx", "onnxscript", "onnx_ir")


@contextmanager
def quiet_loggers(*names: str) -> Iterator[None]:
    """Suppress messages below ERROR of these loggers."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Suppress all warnings, and messages below ERROR of the ONNX exporters."""
    with warnings.catch_warnings(), quiet_loggers(*_EXPORTERS):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Suppress the progress bars of `transformers`, and its messages below ERROR."""
    from transformers.utils import logging as library_logging

    hf_logging: Any = library_logging
    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()
