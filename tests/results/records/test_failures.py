"""Classification of failures."""

import errno
from pathlib import Path

import pytest

from results.records.failures import Cause, Remedy, classify, signature
from results.storage.atomic import storage_error
from trainables.checkpointing.saver import DiskFullError
from trainables.launch.errors import describe_failure, error_line

DIED = "rank 1: ActorDiedError: The actor died unexpectedly before finishing this task."
LOW_MEMORY = (
    "WorkerHealthCheckFailedError: OutOfMemoryError: 1 worker(s) were killed due to the node "
    "running low on memory. Memory on the node (IP: 192.0.2.2) was 8.1GB used"
)
FULL = error_line(DiskFullError("no space left on device"))
FULL_HERE, IO_ERROR = (
    error_line(storage_error(OSError(n, ""), Path(__file__), 100))
    for n in (errno.ENOSPC, errno.EIO)
)
BUG, INFRASTRUCTURE = Cause.BUG, Cause.INFRASTRUCTURE
CASES = [
    ("RuntimeError: boom", Remedy.RETRY, BUG),
    ("Preempted: SIGTERM; left at step 4", Remedy.RETRY, Cause.PREEMPTION),
    (f"WorkerHealthCheckFailedError: {DIED}", Remedy.RETRY, INFRASTRUCTURE),
    (LOW_MEMORY, Remedy.SHRINK, BUG),
    ("OutOfMemoryError: CUDA out of memory. Tried", Remedy.SHRINK, BUG),
    ("MemoryError: Unable to allocate 8 GiB", Remedy.SHRINK, BUG),
    ("RuntimeError: DefaultCPUAllocator: can't allocate memory", Remedy.SHRINK, BUG),
    ("the trial's driving process died", Remedy.RETRY, INFRASTRUCTURE),
    ("the broker between driver and workers died", Remedy.RETRY, INFRASTRUCTURE),
    ("UserError: a.txt:3: not a JSON object", Remedy.FAIL_TRIAL, BUG),
    ("FloatingPointError: overflow", Remedy.DIVERGED, BUG),
    (FULL, Remedy.FAIL_TRIAL, INFRASTRUCTURE),
    ("OSError: [Errno 28] No space left on device", Remedy.STOP_SWEEP, INFRASTRUCTURE),
    (FULL_HERE, Remedy.STOP_SWEEP, INFRASTRUCTURE),
    (IO_ERROR, Remedy.STOP_SWEEP, INFRASTRUCTURE),
    ("OSError: [Errno 30] Read-only file system: 'x'", Remedy.STOP_SWEEP, INFRASTRUCTURE),
    ("OSError: [Errno 5] Input/output error: 'x'", Remedy.RETRY, INFRASTRUCTURE),
    ("AcceleratorError: uncorrectable ECC error", Remedy.RETRY_ELSEWHERE, INFRASTRUCTURE),
    ("AcceleratorError: device-side assert triggered", Remedy.RETRY_ELSEWHERE, BUG),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", Remedy.SHRINK, BUG),
]


@pytest.mark.parametrize(("error", "remedy", "cause"), CASES)
def test_classify_gives_remedy_and_cause(error: str, remedy: Remedy, cause: Cause) -> None:
    failure = classify(f"rank 0: {error}")
    assert (failure.remedy, failure.cause) == (remedy, cause)


@pytest.mark.parametrize(
    ("log", "remedy", "cause"),
    [
        ("step 3\n", Remedy.RETRY, INFRASTRUCTURE),
        ("what():  std::bad_alloc\n", Remedy.SHRINK, BUG),
        ("\nTimeout (0:10:00)!\nThread 0x00007f", Remedy.RETRY, BUG),
    ],
)
def test_classify_reads_the_log_of_a_process_that_died(
    log: str, remedy: Remedy, cause: Cause
) -> None:
    failure = classify(DIED, log)
    assert (failure.remedy, failure.cause) == (remedy, cause)


def test_classify_names_the_assertion_that_failed_on_a_gpu() -> None:
    error = "rank 0: AcceleratorError: CUDA error: device-side assert triggered (train.py:7)"
    line = "Indexing.cu:1583: f: block: [0,0,0], thread: [3,0,0] Assertion `i < n` failed.\n"
    found = classify(error, log=2 * line)
    named = "device-side assert triggered: Assertion `i < n` failed (train.py:7)"
    assert found.error == f"rank 0: AcceleratorError: CUDA error: {named}"
    assert found.remedy is Remedy.RETRY_ELSEWHERE


def test_classify_names_a_hang() -> None:
    assert classify(DIED, "Timeout (0:00:05)!\n").error.startswith("hung: a rank was silent")


def test_classify_prefers_user_patterns() -> None:
    patterns = {"no such thing": Remedy.FAIL_TRIAL, r"bo+m": Remedy.STOP_SWEEP}
    patterns |= {"boom": Remedy.RETRY}
    assert classify("RuntimeError: boom", patterns=patterns).remedy is Remedy.STOP_SWEEP
    found = classify("ValueError", "the ECC error again", patterns={"ECC": Remedy.RETRY_ELSEWHERE})
    assert (found.remedy, found.cause) == (Remedy.RETRY_ELSEWHERE, Cause.INFRASTRUCTURE)


def test_classify_uses_the_chosen_remedy_for_out_of_memory() -> None:
    error = "rank 0: OutOfMemoryError: CUDA out of memory"
    assert classify(error, on_oom=Remedy.FAIL_TRIAL).remedy is Remedy.FAIL_TRIAL


def test_signature_ignores_numbers_and_addresses() -> None:
    first = signature("rank 0: ValueError: x is 3.5 at 0x7fab of 1f00aa77cc")
    assert first == signature("rank 1: ValueError: x is 17.25 at 0x11 of 1f00aa77dd")
    assert first != signature("rank 1: ValueError: y is 17.25 at 0x11 of 1f00aa77dd")


def test_in_one_line_truncates_long_errors() -> None:
    said = error_line(ValueError("shape " + "9" * 50_000))
    assert said.startswith("ValueError: shape 999")
    assert said.endswith("9 …")
    assert len(said) < 1100


class HealthCheckFailed(Exception):
    """The error of Ray Train for a dead worker."""

    health_check_failure = MemoryError("1 worker(s) were killed due to the node running low\n…")


def test_error_line_leaves_out_what_other_processes_hold_of_a_gpu() -> None:
    others = "".join(f" Process {n} has 518.00 MiB memory in use." for n in (7, 8))
    said = f"CUDA out of memory.{others} 3.96 GiB allowed; Of"
    assert (
        error_line(RuntimeError(said)) == "RuntimeError: CUDA out of memory. 3.96 GiB allowed; Of"
    )


def test_actor_that_could_not_begin_is_described_by_its_cause() -> None:
    said = "The actor died because of an error raised in its creation task, ray::A.__init__()\n"
    error = RuntimeError(f"{said}traceback:\n  File x\nModuleNotFoundError: No module named 'x'\n")
    assert error_line(error) == "ModuleNotFoundError: No module named 'x'"
    assert classify(error_line(error)).remedy is Remedy.FAIL_TRIAL


def test_describe_prefers_the_rank_that_died() -> None:
    failed = RuntimeError("Training failed")
    failed.worker_failures = {0: RuntimeError("Connection closed by peer"), 1: ValueError("no")}
    assert describe_failure(failed) == "rank 0: RuntimeError: Connection closed by peer"
    failed.worker_failures[1] = HealthCheckFailed("A worker health check failed.")
    said = "rank 1: HealthCheckFailed: MemoryError: 1 worker(s) were killed due to the node running"
    assert describe_failure(failed) == f"{said} low"
    assert classify(describe_failure(failed)).remedy is Remedy.SHRINK
