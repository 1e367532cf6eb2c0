"""The fault matrix, numbered as in docs/measurements/faults.md: which code injects each fault.

A fault that is injected many times has a generator. The others are injected by tests of the suite,
which every `make test` runs.
"""

from __future__ import annotations

from tests.chaos import bad_input, driver_kills, machine_memory, power_loss
from tests.chaos.outcome import Row, numbered
from tests.chaos.pytest_rows import row_of_tests

FAULTS = "tests/ray/test_faults.py::test_fault_keeps_the_curve_and_costs_one_interval"
KILLED = "tests/ray/test_sweeps.py::test_sweep_resumes_after_a_killed_driver"
CHECKPOINT = "tests/results/checkpoints/test_commit.py"
FAILING = "tests/tuning/controller/test_failure_policy.py"
FENCING = "tests/tuning/sweep_dir/test_fencing.py"
REPAIR = "tests/tuning/sweep_dir/test_repair.py"
FULL = "tests/tuning/sweep_dir/test_full_disk.py"
TRACKING = "tests/results/tracking/test_delivery.py"
MLFLOW = "tests/cases/test_mlflow.py"
SWEEP = "tests/tuning/controller/test_sweep.py"
PREEMPTION = "tests/trainables/runtime/test_preemption.py"

NUMBERS = "tests/cases/test_large_numbers.py"

ROWS = {
    "1": row_of_tests(
        "a worker killed (SIGKILL), rank 0 or another",
        f"{FAULTS}[rank_0_is_killed]",
        f"{FAULTS}[rank_1_is_killed]",
    ),
    "2": row_of_tests(
        "a rank that hangs, or is frozen (SIGSTOP)",
        f"{FAULTS}[rank_1_hangs]",
        f"{FAULTS}[rank_1_is_frozen]",
        "tests/trainables/runtime/test_watchdog.py::test_watchdog_writes_stacks_and_ends_a_silent_rank",
        "tests/cases/test_uneven_ranks.py::test_rank_that_returns_early_hears_who_waits_for_it",
    ),
    "3": row_of_tests(
        "a machine lost",
        "tests/ray/test_machines.py::test_lost_machine_costs_its_trial_an_attempt",
        "tests/ray/test_elastic.py::test_retry_elsewhere_takes_another_machine",
    ),
    "4": row_of_tests(
        "the broker or the tracking process killed",
        "tests/ray/test_faults.py::test_death_of_the_broker_costs_an_attempt",
        "tests/tuning/tracking/test_tracking_client.py::test_tracking_client_restarts_a_killed_process_and_delivers_all",
    ),
    "5": Row(
        "the driver killed (SIGKILL), resumed", driver_kills.cases, driver_kills.killed_drivers
    ),
    "own": Row(
        "the driver killed with a Ray cluster of its own, resumed at once",
        driver_kills.cases,
        driver_kills.killed_with_their_clusters,
    ),
    "6": Row("power loss within a commit", power_loss.cases, power_loss.interrupted_commits),
    "7": row_of_tests(
        "the newest checkpoint damaged",
        f"{FAULTS}[loses_a_checkpoint]",
        f"{FAULTS}[flips_a_bit]",
        f"{FAULTS}[loses_a_manifest]",
        f"{FAULTS}[loses_a_folder]",
        f"{CHECKPOINT}::test_newest_intact_skips_damaged_checkpoints_and_names_them",
        "tests/results/checkpoints/test_cleanup.py::test_quarantine_renames_damaged_checkpoints_after_the_newest_intact",
    ),
    "8": row_of_tests(
        "our records and Ray's state damaged or deleted",
        KILLED,
        f"{REPAIR}::test_lost_record_is_rebuilt",
        f"{REPAIR}::test_lost_state_is_rebuilt",
        f"{REPAIR}::test_trial_is_quarantined_if_record_and_study_are_lost",
        f"{REPAIR}::test_trial_stays_finished_if_reports_and_study_are_lost",
        f"{REPAIR}::test_damaged_spec_file_is_restored_from_its_copy",
        f"{REPAIR}::test_flipped_bit_in_a_report_loses_that_line_only",
    ),
    "9": row_of_tests(
        "the disk full",
        f"{FULL}::test_full_disk_keeps_the_old_file",
        f"{FULL}::test_full_disk_loses_only_the_line_that_does_not_fit",
        f"{FULL}::test_full_disk_keeps_the_older_checkpoint",
        f"{FULL}::test_sweep_resumes_after_a_full_disk",
        f"{FAILING}::test_full_disk_stops_the_sweep_and_loses_no_trial",
        "tests/cli/run/test_plan.py::test_plan_warns_if_the_disk_is_too_small",
    ),
    "10": row_of_tests(
        "MLflow down, slow, failing, locked",
        f"{TRACKING}::test_next_session_delivers_what_a_failing_server_did_not_store",
        f"{TRACKING}::test_hanging_server_does_not_delay_close",
        "tests/tuning/tracking/test_tracking_client.py::test_tracking_client_never_waits_for_a_process_that_does_not_read",
        "tests/results/tracking/test_server.py::test_delivery_continues_after_a_server_restart",
        f"{TRACKING}::test_delivery_retries_a_locked_database",
        f"{TRACKING}::test_delivery_after_a_killed_driver_is_complete_and_ends_all_runs",
        "tests/cli/elsewhere/test_transfer.py::test_sync_delivers_once",
    ),
    "11": row_of_tests(
        "storage that fails for a moment",
        "tests/results/storage/test_retry.py::test_write_retries_transient_errors",
        "tests/results/storage/test_retry.py::test_append_line_survives_transient_errors",
        "tests/results/storage/test_retry.py::test_write_raises_an_error_that_persists",
        "tests/results/checkpoints/test_streaming_hash.py::test_write_hashed_retries_the_whole_file",
        "tests/trainables/checkpointing/test_saver.py::test_transient_storage_error_is_retried",
        "tests/results/storage/test_object_store.py::test_object_store_retries_transient_errors",
        "tests/trainables/checkpointing/test_uploads.py::test_upload_error_does_not_fail_training",
    ),
    "12": row_of_tests(
        "out of memory: a process's limit, a GPU's",
        f"{FAULTS}[needs_much_memory]",
        f"{FAILING}::test_shrink_halves_the_micro_batch_down_to_one",
        f"{FAILING}::test_on_oom_chooses_the_remedy",
    ),
    "machine": Row("a machine's memory used up", machine_memory.cases, machine_memory.exhausted),
    "13": row_of_tests(
        "a model that diverges",
        "tests/ray/test_faults.py::test_diverged_trial_never_wins",
        f"{FAILING}::test_diverged_above_fails_the_trial",
        f"{SWEEP}::test_metric_that_is_not_finite_fails_the_trial",
        "tests/trainables/checkpointing/test_saver.py::test_diverged_model_is_not_saved",
    ),
    "numbers": row_of_tests(
        "metrics near and beyond the range of floats",
        f"{NUMBERS}::test_metric_beyond_floats_is_left_out_by_name",
        f"{NUMBERS}::test_whole_number_of_a_program_may_have_any_length",
        f"{NUMBERS}::test_search_and_report_of_huge_values",
    ),
    "14": row_of_tests(
        "a corrupt data file",
        "tests/trainables/data/text/test_dataset.py::test_bad_data_is_skipped_or_refused",
    ),
    "15": row_of_tests(
        "SIGTERM with a grace time",
        f"{FAULTS}[is_preempted]",
        f"{PREEMPTION}::test_sigterm_leaves_at_the_next_report_with_a_checkpoint",
        f"{PREEMPTION}::test_sigterm_in_each_phase_resumes_bit_for_bit",
        f"{PREEMPTION}::test_sigterm_at_the_final_report_ends_the_trial",
        "tests/ray/test_stop_and_pause.py::test_sweep_resumes_after_every_kind_of_stop",
    ),
    "16": row_of_tests(
        "two drivers, frozen owners, orphans",
        f"{FENCING}::test_stale_driver_that_wakes_up_writes_nothing",
        f"{FENCING}::test_stale_driver_delivers_nothing_to_mlflow",
        "tests/tuning/tracking/test_tracking_client.py::test_tracking_client_reports_a_lost_sweep",
        "tests/tuning/tracking/test_tracking_client.py::test_tracking_process_ends_with_its_driver",
        f"{FENCING}::test_orphaned_attempt_is_superseded_before_its_reports_are_read",
        f"{FENCING}::test_lost_or_damaged_lock_has_no_owner",
        "tests/tuning/sweep_dir/test_lock.py::test_lock_refuses_a_second_driver_and_names_the_first",
        "tests/trainables/checkpointing/test_saver.py::test_orphan_commits_no_checkpoint",
    ),
    "17": row_of_tests(
        "a poison configuration",
        "tests/ray/test_faults.py::test_repeated_error_ends_the_trial",
        f"{FAILING}::test_repeated_loss_at_the_same_step_counts_as_a_bug",
        "tests/cases/test_certain_failures.py::test_mistake_before_the_first_report_is_not_tried_again",
    ),
    "18": row_of_tests(
        "late and duplicate reports, a clock set back",
        f"{SWEEP}::test_late_reports_change_nothing",
        f"{SWEEP}::test_outcome_told_twice_counts_once",
        "tests/tuning/controller/test_late_reports.py::test_late_reports_of_a_superseded_attempt_are_ignored",
        "tests/tuning/controller/test_late_reports.py::test_changed_clock_changes_no_decision",
    ),
    "19": row_of_tests(
        "the study lost or damaged",
        f"{REPAIR}::test_lost_study_is_rebuilt",
        f"{SWEEP}::test_resume_without_the_study_rebuilds_it",
        f"{SWEEP}::test_torn_journal_line_is_dropped",
        f"{SWEEP}::test_proposal_without_a_record_is_resumed",
    ),
    "20": row_of_tests(
        "resumed under other versions",
        KILLED,
        f"{REPAIR}::test_resume_reports_library_versions_that_changed_since_the_newest_record",
        f"{REPAIR}::test_resume_ignores_unknown_keys_of_a_record",
        f"{REPAIR}::test_resume_refuses_an_intact_record_of_another_version",
    ),
    "21": row_of_tests(
        "elastic: machines that go and come back",
        "tests/ray/test_elastic.py::test_elastic_trial_shrinks_and_grows",
    ),
    "answer": row_of_tests(
        "a Ray cluster that does not answer; no loopback interface",
        "tests/tuning/cluster/test_connection.py::test_cluster_that_does_not_answer_is_named",
        "tests/tuning/cluster/test_connection.py::test_machine_that_does_not_reach_itself_is_named",
    ),
    "moved": row_of_tests(
        "the project moved to another folder",
        "tests/cases/test_moved_project.py::test_moved_project_is_found_and_its_trials_still_fit",
        "tests/cases/test_moved_project.py::test_other_code_is_not_taken",
    ),
    "mirror": row_of_tests(
        "the machine's disk lost, object storage kept",
        "tests/results/checkpoints/test_trial_mirror.py::test_mirror_restores_a_checkpoint_on_another_machine",
        "tests/results/checkpoints/test_trial_mirror.py::test_mirror_skips_a_damaged_checkpoint",
        "tests/results/checkpoints/test_trial_mirror.py::test_mirror_survives_a_killed_sender",
        "tests/tuning/sweep_dir/test_record_mirror.py::test_lost_sweep_resumes_from_its_mirror",
        "tests/ray/test_mirror_restore.py::test_sweep_continues_from_its_mirror",
    ),
    "mlflow": row_of_tests(
        "killed while MLflow's database is made; an unreadable one",
        f"{MLFLOW}::test_killed_first_delivery_leaves_a_whole_database_or_none",
        f"{MLFLOW}::test_two_first_deliveries_at_once_make_one_database",
        f"{MLFLOW}::test_unreadable_database_of_a_storage_is_set_aside_and_filled_again",
    ),
    "folders": Row("sweep folders damaged at random", numbered, bad_input.damaged_folders),
    "fuzz": Row("sweep files changed at random", numbered, bad_input.mutated_files),
}
