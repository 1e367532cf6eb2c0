"""What the doctor says about measurements; none of them is real."""

from __future__ import annotations

from typing import Any

from tuning.doctor.findings import Plan, find
from tuning.doctor.launch import Rehearsal

Measured = dict[str, Any]


def fine(rank: int, **changes: Any) -> Measured:
    """A worker on a machine of its own that measured nothing unusual."""
    measured = {
        "rank": rank,
        "at": "done",
        "errors": {},
        "node": f"node{rank}",
        "host": f"h{rank} (10.0.0.{rank})",
        "versions": {"python": "3.11.7", "torch": "2.13.0"},
        "digests": {"data": "d" * 64, "model": "m" * 64},
        "import_memory_mb": 500.0,
        "memory_mb": 600.0,
        "machine_memory_mb": 16_000.0,
        "links": {str(other): [0.1, 1000.0] for other in range(rank + 1, 4)},
        "parquet_load_time": 1.0,
        "checkpoint_save_time": 1.0,
        "checkpoint_size_mb": 100.0,
        "checkpoint_same": True,
        "all_reduce_right": True,
        "missing": [],
        "missing_files": 0,
        "unreadable": {},
    }
    clock = {"clock_ahead": [0.0, 1e-4, -1e-4]} if rank == 0 else {}
    return {**measured, **clock, **changes}


def said(changed: dict[int, Measured], plan: Plan | None = None, **more: Any) -> list[str]:
    """Findings of four workers, some of which measured something else; `!` marks those that break
    a sweep."""
    workers = [fine(rank, **changed.get(rank, {})) for rank in range(4)]
    rehearsal = Rehearsal(4, workers=workers, **more)
    return [f"{'!' * finding.breaks}{finding.what}" for finding in find(rehearsal, plan)]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert said({}, Plan(10**9, 4, 10**12, 4)) == []


def test_slow_link_is_named_and_others_are_not() -> None:
    links = {"2": [0.1, 1000.0], "3": [9.0, 90.0]}
    assert said({1: {"links": links}}) == [
        "the link between rank 1 on h1 (10.0.0.1) and rank 3 on h3 (10.0.0.3) is slow: 90 MB/s, "
        "usual 1e+03 MB/s"
    ]


def test_links_within_a_machine_are_not_judged() -> None:
    links = {"2": [0.1, 1000.0], "3": [9.0, 90.0]}
    assert said({1: {"links": links, "node": "node3"}}) == []


def test_the_only_link_is_judged_by_its_speed() -> None:
    workers = [fine(0, links={"1": [1.0, 1.5]}), fine(1, links={})]
    (finding,) = find(Rehearsal(2, workers=workers), None)
    assert "between rank 0 on h0 (10.0.0.0) and rank 1 on h1 (10.0.0.1) is slow" in finding.what


def test_clock_skew_breaks_a_sweep_beyond_the_heartbeat_of_its_lock() -> None:
    assert said({0: {"clock_ahead": [0.0, -3.0, 0.5]}}) == [
        "the clock of rank 2 on h2 (10.0.0.2) is 3 s behind that of rank 0"
    ]
    assert said({0: {"clock_ahead": [90.0, 0.0, 0.0]}}) == [
        "!the clock of rank 1 on h1 (10.0.0.1) is 90 s ahead of that of rank 0"
    ]


def test_versions_and_digests_must_be_equal() -> None:
    versions = {"python": "3.11.7", "torch": "2.12.0"}
    digests = {"data": "e" * 64, "model": "m" * 64}
    others = "ranks 0, 1, 3 on h0 (10.0.0.0), h1 (10.0.0.1), h3 (10.0.0.3)"
    assert said({2: {"versions": versions, "digests": digests}}) == [
        f"!torch is not the same everywhere: 2.13.0 on {others}, 2.12.0 on rank 2 on h2 (10.0.0.2)",
        f"!the digest of the data is not the same everywhere: dddddddddddd on {others}, "
        "eeeeeeeeeeee on rank 2 on h2 (10.0.0.2)",
    ]


def test_library_that_one_machine_lacks_is_named() -> None:
    (line,) = said({3: {"versions": {"python": "3.11.7"}}})
    assert line.startswith("!torch is not the same everywhere: 2.13.0 on ranks 0, 1, 2")
    assert line.endswith("none on rank 3 on h3 (10.0.0.3)")


def test_missing_and_unreadable_files_are_named() -> None:
    lost = ["/data/a.parquet", "/data/b.parquet", "/data/c.parquet"]
    changed = {
        1: {"missing": lost, "missing_files": 4},
        2: {"unreadable": {"/data/z.parquet": "Parquet magic bytes not found"}},
    }
    assert said(changed) == [
        f"!rank 1 on h1 (10.0.0.1) lacks 4 files: {', '.join(lost)}",
        "!/data/z.parquet cannot be read: Parquet magic bytes not found",
    ]


def test_ranks_with_the_same_error_are_named_together() -> None:
    broken = {"errors": {"model_load": "OSError: no file named model.safetensors"}}
    assert said({1: broken, 2: broken}) == [
        "!model_load failed on ranks 1, 2 on h1 (10.0.0.1), h2 (10.0.0.2): OSError: no file named "
        "model.safetensors"
    ]


def test_wrong_sums_and_changed_checkpoints_break_a_sweep() -> None:
    assert said({2: {"all_reduce_right": False, "checkpoint_same": False}}) == [
        "!the all-reduce gave a wrong sum on rank 2 on h2 (10.0.0.2)",
        "!the checkpoint that was read back is another one on rank 2 on h2 (10.0.0.2)",
    ]


def test_worker_that_is_slow_alone_is_named() -> None:
    assert said({3: {"parquet_load_time": 12.0}}) == [
        "rank 3 on h3 (10.0.0.3) takes 12 s for parquet_load, others 1 s"
    ]
    assert said({rank: {"parquet_load_time": 12.0} for rank in range(4)}) == []


def test_slow_storage_is_a_note() -> None:
    slow = {rank: {"checkpoint_save_time": 10.0} for rank in range(4)}
    assert said(slow) == ["checkpoints are written at 10 MB/s per worker"]


def test_workers_that_hang_are_named_with_their_phase() -> None:
    hang = "no worker began another phase for 301 s"
    changed = {rank: {"at": "links"} for rank in range(4)} | {2: {"at": "clock"}}
    assert said(changed, failure=hang) == [
        f"!the workers did not end: {hang}: ranks 0, 1, 3 on h0 (10.0.0.0), h1 (10.0.0.1), "
        "h3 (10.0.0.3) in links, rank 2 on h2 (10.0.0.2) in clock"
    ]


def test_workers_that_do_not_start_are_counted() -> None:
    (finding,) = find(Rehearsal(4, failure="no process group"), None)
    assert finding.what == "0 of 4 workers started: no process group"


def test_tracker_that_does_not_answer_breaks_nothing() -> None:
    problems = {"tracking": "MLflow does not answer", "storage": "locking does not work there"}
    assert said({}, problems=problems) == [
        "!locking does not work there",
        "MLflow does not answer",
    ]


def test_disk_and_memory_of_the_planned_sweep() -> None:
    assert said({}, Plan(10**9, 32, 10**10, 1)) == [
        "!the sweep keeps 32 checkpoints: 32.0 GB, but 10.0 GB are free"
    ]
    assert said({}, Plan(3 * 10**9, 1, 10**12, 4)) == [
        "!h0 (10.0.0.0) has 16.0 GB of memory for 4 workers of 4.5 GB"
    ]
