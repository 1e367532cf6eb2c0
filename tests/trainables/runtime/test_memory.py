from tests.trainables.local import run_python
from trainables.runtime.leftovers import MemorySample, describe_growth

SCRIPT = """
import torch
from trainables.runtime.leftovers import LeakDetector

kept, gauge = [], LeakDetector(torch.device("cpu"), 64 * 2**20)
gauge.after_trial(failed=True)
kept.append(b"x" * (100 * 2**20))  # imports, say
for leaves, uses in [(0, 200), (0, 200), (32, 300), (0, 0), (64, 0)]:
    kept.append(b"x" * (leaves * 2**20))
    used = b"x" * (uses * 2**20)
    del used
    print(gauge.after_trial())
"""


def test_leak_detector_ignores_memory_that_was_freed():
    *fine, leak = run_python("-c", SCRIPT).splitlines()
    assert fine == ["None"] * 4
    grown = int(leak.split(" MiB of host memory beyond the ")[0])
    assert 90 <= grown <= 110


def test_describe_growth_names_what_exceeds_the_limit():
    mib = 2**20
    baseline = MemorySample(host=400 * mib, device=10 * mib)
    assert describe_growth(baseline, MemorySample(500 * mib, 10 * mib), 100 * mib) is None
    assert describe_growth(baseline, MemorySample(501 * mib, 10 * mib), 100 * mib) == (
        "101 MiB of host memory beyond the 400 MiB after the first trial"
    )
    said = describe_growth(baseline, MemorySample(100 * mib, 120 * mib), 100 * mib)
    assert said == "110 MiB of device memory beyond the 10 MiB after the first trial"
