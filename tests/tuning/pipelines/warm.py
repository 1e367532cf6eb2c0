"""What a process of the pipeline imports and reads: the server that forks it does so once."""

from __future__ import annotations

from importlib import import_module

from tests.tuning.pipelines import small
from trainables.registry import resolve

for _name in ("causal_lm", "sft"):
    _trainable = resolve(_name)
    for _module in _trainable.modules:
        import_module(_module)
    _trainable.source()
for _module in ("tuning.pipelines.kinds.models", "tuning.pipelines.kinds.folders"):
    import_module(_module)
assert small.STAGES
