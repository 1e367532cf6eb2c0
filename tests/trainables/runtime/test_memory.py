"""What a process holds, measured in a process of its own: the tests' one is not at rest."""

import subprocess
import sys

SCRIPT = """
import torch
from trainables.runtime.memory import LeakDetector

kept, gauge = [], LeakDetector(torch.device("cpu"), 64 * 2**20)
gauge.after_trial(failed=True)
kept.append(b"x" * (100 * 2**20))  # imports, say
for leaves, uses in [(0, 200), (0, 200), (32, 300), (0, 0), (64, 0)]:
    kept.append(b"x" * (leaves * 2**20))
    used = b"x" * (uses * 2**20)
    del used
    print(gauge.after_trial())
"""


def test_a_gauge_tells_what_is_kept_from_what_was_used():
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    *fine, leak = run.stdout.splitlines()
    assert fine == ["None"] * 4
    grown = int(leak.split(" MiB of host memory beyond the ")[0])
    assert 90 <= grown <= 110
