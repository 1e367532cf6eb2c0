"""The second half of the fault matrix, "hostile and exhausted": which code injects each fault.

A row's name is the letter of its subject and a number. Keep the letters in order.
"""

from __future__ import annotations

from tests.chaos import bad_input, bad_storage, random_faults, stuck_drivers
from tests.chaos.outcome import Row, numbered
from tests.chaos.pytest_rows import row_of_tests

HOSTS = "tests/cluster/test_two_hosts.py"
PROBE = "tests/results/storage/test_probe.py"
WATCHDOG = "tests/tuning/sweep_dir/test_watchdog.py"
LOCAL = "tests/ray/test_local_cluster.py"
HOSTILE_CODE = "tests/ray/test_hostile_code.py"
FAILING = "tests/tuning/controller/test_failure_policy.py"
PLAN = "tests/cli/run/test_plan.py"
FOREIGN, SECURITY = "tests/cli/test_foreign.py", "tests/cli/test_security.py"
FOREIGN_COMMANDS = (
    *("resume", "average", "export", "generate", "predict", "reproduce", "best"),
    *("sync", "fetch", "ui"),
)

CONFORMANCE = "tests/tuning/search/test_optuna_conformance.py"

OUTPUT = "tests/cases/test_standard_output.py"
UNREADABLE = "tests/cases/test_unreadable_records.py"

HOSTILE_ROWS: dict[str, Row] = {
    # A. Errors inside callbacks of Ray Tune, storage that fails, a driver that is stuck.
    "A1": Row(
        "every write of a record fails for good", bad_storage.writes, bad_storage.failing_writes
    ),
    "A2": Row("the disk full until there is room", bad_storage.small_disks, bad_storage.full_disks),
    "A3": Row(
        "a driver that is stuck, also when a signal comes; its terminal gone",
        stuck_drivers.cases,
        stuck_drivers.ended_drivers,
    ),
    "A4": row_of_tests(
        "an exception in a callback of Ray Tune, a session stuck before its first trial",
        "tests/ray/test_bad_storage.py::test_write_error_in_a_callback_ends_the_session_with_one_line",
        f"{WATCHDOG}::test_signal_ends_a_session_that_hangs_before_its_first_trial",
        f"{WATCHDOG}::test_watchdog_interrupts_a_python_caller_and_writes_all_stacks",
    ),
    # B. Signals of real life; Ray's own processes killed.
    "B1": row_of_tests(
        "SIGTERM to the process group, with a Ray cluster of its own",
        "tests/ray/test_own_cluster.py::test_sigterm_to_the_process_group_saves_and_stops",
    ),
    "B2": row_of_tests(
        "Ray does not start; a driver killed without a word",
        "tests/ray/test_own_cluster.py::test_ray_that_does_not_start_is_one_line",
        "tests/cli/run/test_death_notice.py::test_line_after_a_kill_only",
    ),
    "B3": row_of_tests(
        "the terminal gone (SIGHUP), with and without nohup; a signal before the session starts",
        "tests/cli/run/test_signals.py::test_hangup_stops_a_session_unless_ignored",
        "tests/cli/run/test_signals.py::test_signal_before_the_session_starts_stops_it",
    ),
    "B9": Row(
        "any process killed, stopped or told to end, in any phase; resumed",
        numbered,
        random_faults.run,
        count=30,
    ),
    # C. Records deleted, truncated, changed or swapped.
    "C1": Row("records damaged at random", numbered, bad_input.damaged_records, 2_000),
    "C2": row_of_tests(
        "the winner's records lost, changed or swapped",
        "tests/cli/test_damage.py::test_every_command_names_the_winner_that_is_lost",
        "tests/cli/test_damage.py::test_unreadable_record_is_left_out_when_damage_is_accepted",
    ),
    # D. Secrets in the environment.
    "D1": row_of_tests(
        "secrets in the environment of a sweep, whose code prints and raises them",
        f"{LOCAL}::test_no_secret_reaches_the_disk",
        f"{LOCAL}::test_command_lines_hold_no_secret",
        f"{LOCAL}::test_no_process_leaves_a_core_dump",
    ),
    "D2": row_of_tests(
        "a worker killed or crashed with a secret in its last words",
        f"{LOCAL}::test_last_words_and_reasons_of_failures_are_kept_redacted",
        "tests/results/storage/test_log_filter.py::test_last_words_of_a_crashed_process_are_in_the_log",
    ),
    "D3": row_of_tests(
        "secrets in pieces, in long lines, in base64 and in URLs",
        "tests/results/storage/test_log_filter.py::test_secret_in_two_writes_is_hidden",
        "tests/results/storage/test_log_filter.py::test_secret_anywhere_in_a_long_line_is_hidden",
        "tests/search_spaces/test_redaction.py::test_no_form_of_a_secret_is_left",
    ),
    "D4": row_of_tests(
        "the process that redacts killed, its disk full",
        "tests/results/storage/test_log_filter.py::test_filter_that_was_killed_is_replaced",
        "tests/results/storage/test_log_filter.py::test_log_of_a_full_disk_does_not_stop_the_process",
    ),
    # E. A folder from a stranger.
    "E1": row_of_tests(
        "a received folder that names code, an address and a variable",
        *(f"{FOREIGN}::test_command_refuses_a_foreign_folder[{name}]" for name in FOREIGN_COMMANDS),
        f"{FOREIGN}::test_trust_is_remembered_until_the_file_changes",
        f"{FOREIGN}::test_person_at_the_terminal_is_asked[n]",
    ),
    "E2": row_of_tests(
        "an owner on another machine, with and without the key; state.json lost",
        f"{FOREIGN}::test_owner_resumes_unattended_on_another_machine[TUNE_KEY]",
        f"{FOREIGN}::test_owner_resumes_unattended_on_another_machine[TUNE_KEY_FILE]",
        f"{FOREIGN}::test_driver_killed_within_a_change_stays_the_owner",
        f"{FOREIGN}::test_resume_of_a_lost_state_needs_consent_once",
        f"{FOREIGN}::test_restored_folder_contacts_only_what_its_user_named",
    ),
    "E3": row_of_tests(
        "terminal escapes and markup in names, parameters, reasons and errors",
        "tests/cli/test_hostile_text.py::test_errors_have_no_control_characters",
        "tests/cli/test_hostile_text.py::test_report_escapes_markup",
        "tests/cli/test_hostile_text.py"
        "::test_colours_of_a_terminal_are_kept_and_those_of_a_record_are_not",
    ),
    "E4": row_of_tests(
        "links out of the folder, where something is written",
        *(
            f"{SECURITY}::test_nothing_is_written_through_a_link_out_of_the_folder[{link}]"
            for link in ("trials", "results", "inbox", "study.journal")
        ),
        f"{SECURITY}::test_record_is_not_written_through_a_link",
    ),
    # F. Ray's listeners, tokens and temporary folders.
    "F1": row_of_tests(
        "a stranger on the network, or another user of the machine, looks for open ports and files",
        f"{LOCAL}::test_every_listener_is_on_the_loopback_interface",
        f"{LOCAL}::test_files_of_ray_are_private_and_removed",
    ),
    "F2": row_of_tests(
        "a driver killed, its Ray folder left behind",
        "tests/tuning/cluster/test_session_folder.py"
        "::test_folder_of_a_killed_driver_is_removed_by_the_next",
        "tests/tuning/cluster/test_session_folder.py"
        "::test_folder_and_agents_of_a_killed_driver_are_removed_without_a_next",
    ),
    "F3": row_of_tests(
        "a cluster of another machine without authentication",
        "tests/tuning/cluster/test_connection.py::test_cluster_on_another_machine_needs_a_token",
        "tests/tuning/cluster/test_connection.py::test_cluster_that_needs_no_token_is_recognised",
    ),
    "F4": row_of_tests(
        "another web page asks for MLflow's pages",
        "tests/results/tracking/test_server.py::test_delivery_continues_after_a_server_restart",
    ),
    # G. Inputs that hang.
    "G1": Row(
        "hostile sweep files: numbers, formulas, patterns, sizes, nesting",
        numbered,
        bad_input.hostile_files,
        count=20_000,
    ),
    "G2": row_of_tests(
        "formulas, patterns and contents of a file that could run without end",
        "tests/search_spaces/loading/test_limits.py::test_large_file_is_refused_with_the_limit",
        "tests/search_spaces/test_expressions.py::test_evaluate_is_bounded",
        "tests/search_spaces/test_patterns.py::test_slow_pattern_ends_and_is_not_tried_again",
        "tests/search_spaces/test_patterns.py::test_pattern_that_could_use_much_memory_is_refused",
        "tests/cli/look/test_ls.py::test_ls_shows_the_others_beside_a_hostile_sweep",
    ),
    # H. A sweep that only fails.
    "H1": row_of_tests(
        "training code with a mistake, in every trial or in one",
        f"{HOSTILE_CODE}::test_sweep_ends_after_three_trials_that_fail_alike",
        f"{HOSTILE_CODE}::test_failed_trials_run_again_after_a_fix",
        f"{HOSTILE_CODE}::test_each_mistake_is_one_line",
        f"{HOSTILE_CODE}::test_mistakes_of_a_ray_train_loop_are_one_line",
    ),
    "H2": row_of_tests(
        "failures that are alike, and those that are not",
        f"{FAILING}::test_three_trials_that_fail_alike_end_the_session",
        f"{FAILING}::test_failures_of_machines_and_configurations_do_not_end_the_session",
        f"{FAILING}::test_trials_after_the_first_value_do_not_end_the_session",
        f"{FAILING}::test_certain_mistake_in_the_code_is_not_tried_again",
        "tests/tuning/controller/test_sweep.py::test_missing_metric_fails_the_trial_at_its_first_report",
    ),
    "H3": row_of_tests(
        "mistakes that are known before the start",
        f"{PLAN}::test_metric_that_is_not_reported_is_refused",
        f"{PLAN}::test_missing_data_files_are_refused",
        f"{PLAN}::test_mistakes_of_a_ray_train_loop_show_in_its_source",
        f"{PLAN}::test_class_that_cannot_be_imported_is_one_line",
    ),
    "H4": row_of_tests(
        "no trial has a value: the exit code",
        "tests/cli/run/test_resume_amended.py::test_exit_code_is_1_if_no_trial_has_a_value",
        "tests/cli/run/test_trial.py::test_trial_without_a_value_of_the_metric_exits_with_1",
    ),
    # I. Small ones: dead drivers, read-only storage, large folders.
    "I1": row_of_tests(
        "a sweep of a dead driver, of a live one, or finished, is shown and resumed",
        "tests/cli/look/test_show.py::test_clock_of_a_dead_driver_stands_still",
        "tests/cli/run/test_resume_amended.py::test_resume_does_not_change_a_running_sweep",
        "tests/cli/run/test_resume_amended.py::test_smaller_budget_says_what_it_means",
        "tests/cli/test_summary.py::test_resume_of_a_finished_sweep_takes_no_time",
        "tests/cli/test_summary.py::test_summary_inspects_the_confirmed_winner",
    ),
    "I2": row_of_tests(
        "storage that is read-only, or a mount of object storage",
        f"{PROBE}::test_read_only_storage_is_one_line",
        f"{PROBE}::test_plan_and_run_refuse_a_mount_of_object_storage",
    ),
    "I3": row_of_tests(
        "the start of workers is no trial's time",
        "tests/trainables/launch/broker/test_broker.py::test_events_carry_how_long_the_attempt_waited",
        "tests/tuning/resources/test_budget.py"
        "::test_start_of_workers_counts_in_budgets_and_not_in_a_trials_seconds",
        "tests/ray/test_lanes.py::test_trials_start_no_process_of_ray_tune",
    ),
    # J. Two hosts.
    "J1": row_of_tests(
        "a trial on two hosts, whose names mean loopback",
        f"{HOSTS}::test_trial_spans_two_hosts",
        f"{HOSTS}::test_group_that_cannot_form_names_addresses_and_interface",
    ),
    "J2": row_of_tests(
        "the link between two hosts cut for 25 s, or slow and lossy",
        f"{HOSTS}::test_cut_link_costs_nothing",
        f"{HOSTS}::test_slow_and_lossy_link",
    ),
    "J3": row_of_tests(
        "a host cut off until Ray gives it up, or powered off; it comes back",
        f"{HOSTS}::test_lost_host_costs_one_interval",
    ),
    # K. Searchers at their edges.
    "K1": row_of_tests(
        "searchers and the journal in Optuna's own conformance tests",
        f"{CONFORMANCE}::TestOurs",
        f"{CONFORMANCE}::TestSeveralObjectives",
        f"{CONFORMANCE}::TestOneObjective",
        f"{CONFORMANCE}::TestRelative",
        f"{CONFORMANCE}::TestJournal",
    ),
    "K2": row_of_tests(
        "proposals that repeat, end values, huge values, several objectives",
        "tests/tuning/search/test_searchers.py::test_mfgp_proposes_each_of_sixteen_values_once",
        "tests/tuning/search/test_searchers.py::test_random_proposals_of_mfgp_differ",
        "tests/tuning/search/test_optuna_space.py::test_resampled_end_values_have_a_whole_step",
        "tests/tuning/search/test_searchers.py::test_mfgp_avoids_a_region_whose_values_are_huge",
        "tests/tuning/search/test_searchers.py::test_searcher_of_one_metric_refuses_several",
        "tests/search_spaces/domains/test_domain.py::test_invalid_arguments_are_refused",
    ),
    # L. Outputs, folders and files that are not what they should be.
    "L1": row_of_tests(
        "stdout full, its reader gone, a terminal without Unicode",
        f"{OUTPUT}::test_command_names_a_full_stdout",
        f"{OUTPUT}::test_session_goes_on_without_stdout",
        f"{OUTPUT}::test_ascii_terminal_gets_escapes",
    ),
    "L2": row_of_tests(
        "records garbled as a whole, too large to be read; no inode left",
        f"{UNREADABLE}::test_reports_in_another_form_are_damage",
        f"{UNREADABLE}::test_torn_line_is_none",
        f"{UNREADABLE}::test_file_larger_than_a_record_can_be_is_damage",
        f"{UNREADABLE}::test_lack_of_inodes_is_named",
    ),
}
