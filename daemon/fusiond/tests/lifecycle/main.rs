//! The daemon as a process: real binary, real socket, real signals. The worker is scripted, so that it can misbehave on demand.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "the modules of one program")]

mod attachment;
mod client_workers;
mod commands;
mod doctor;
mod faults;
mod gates;
mod interop;
mod jobs;
mod machines;
mod recalibration;
mod scripted_worker;
mod sensors;
mod serving;
mod sharing;
mod shutdown;
mod supervised;
mod support;

use libtest_mimic::{Arguments, Trial};

/// Trials named after their functions.
macro_rules! trials {
    ($($module:ident: $($name:ident)+;)+) => {
        vec![$($(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            support::block_on($module::$name());
            Ok(())
        })),+),+]
    };
}

fn main() {
    let after = |flag: &str| std::env::args().skip_while(|argument| argument != flag).nth(1);
    if let Some(script) = after(scripted_worker::FLAG) {
        return scripted_worker::run(&script);
    }
    if after("-m").as_deref() == Some("fusiond.worker") {
        return scripted_worker::run(&std::env::var("PYTHONPATH").unwrap());
    }
    if let Some(socket) = after("--ask-status") {
        return support::block_on(faults::ask_status(&socket));
    }
    let trials = trials! {
        serving:
            a_measured_shape_is_answered_for_ever
            rows_never_measured_come_from_the_lines
            pages_hold_every_estimate_once
            a_development_pair_is_labelled
            status_tells_the_whole_story;
        jobs:
            one_job_runs_and_the_other_waits
            a_caller_that_leaves_takes_the_worker_along
            a_second_calibration_measures_nothing
            repeated_shapes_are_measured_once
            a_cancelled_job_keeps_what_was_committed
            a_client_that_turns_busy_ends_the_worker_and_rest_goes_on
            cancelled_jobs_take_no_places;
        recalibration:
            what_is_configured_is_measured_without_being_asked
            an_attached_clients_layers_are_measured_while_it_rests
            the_state_of_the_machine_holds_it_back
            a_person_pauses_it_and_goes_on
            a_command_is_answered_with_the_decision_that_follows_it
            what_clients_ran_lately_is_wanted_by_the_next_daemon
            one_daemon_of_a_machine_measures
            a_worker_that_fails_is_left_alone_for_a_while
            the_budget_outlives_the_daemon
            without_a_budget_that_is_kept_nothing_is_measured
            a_bad_configuration_keeps_the_old_one
            a_slow_canary_tells_heat_that_the_sensors_deny
            the_past_of_a_shape_is_told;
        machines:
            a_recorded_machine_is_calibrated_like_any_other
            recorded_numbers_are_labelled_everywhere
            a_shape_that_was_not_recorded_is_refused_with_what_was
            recorded_modelled_and_measured_never_mix
            a_modelled_machine_has_finish_times
            an_unknown_machine_lists_the_known_ones
            a_discovered_cliff_is_remembered;
        faults:
            impossible_requests_are_refused_by_name
            an_oversized_message_is_refused
            garbage_on_the_socket_harms_nobody
            a_second_daemon_names_the_first
            a_missing_worker_is_no_end
            a_dying_worker_is_a_result
            a_dead_worker_is_remembered_when_the_next_is_well
            worker_after_worker_dies
            a_hanging_worker_is_ended
            a_worker_of_another_protocol_is_refused
            a_worker_that_speaks_no_frames_is_refused
            a_wrong_product_is_not_stored
            a_shape_larger_than_memory_is_refused
            a_refusal_concerns_one_shape
            a_foreign_user_is_refused
            a_socket_path_that_is_too_long_is_refused
            a_state_directory_that_cannot_be_is_named
            a_corrupted_index_is_set_aside_and_rebuilt;
        shutdown:
            terminate_leaves_nothing_behind
            a_drain_ends_open_streams
            a_waiting_job_is_told_that_it_is_cancelled
            whoever_waits_until_it_is_gone_can_start_another
            a_silent_connection_does_not_hold_it_up
            a_killed_daemon_is_replaced_and_knows_everything;
        doctor:
            a_throttled_daemon_is_found_and_not_believed
            a_restart_forgets_what_a_self_test_found
            a_self_test_waits_for_peace
            where_nothing_can_be_timed_there_is_no_self_test
            rounds_without_times_are_refused;
        sharing:
            an_equal_machine_answers_from_what_it_was_given
            what_was_measured_here_answers_before_what_came_later
            another_chips_calibrations_are_refused_or_become_priors
            numbers_that_were_not_measured_stay_out
            a_damaged_bundle_changes_nothing
            a_chip_that_nothing_is_known_of_is_not_exported
            killed_at_any_step_of_an_import_the_next_one_mends_it
            an_import_whose_caller_leaves_is_finished_by_the_next;
        attachment:
            a_client_is_told_at_once_and_whenever_something_changes
            what_one_client_sees_corrects_all
            short_work_keeps_a_client_busy_until_it_stops
            two_busy_clients_correct_nothing
            whoever_is_busy_is_seen_to_be
            a_daemon_that_goes_and_comes_is_ridden_through
            without_a_daemon_the_snapshot_file_answers
            a_hanging_daemon_delays_nobody
            a_client_of_another_protocol_is_refused;
        gates:
            the_first_call_of_a_region_follows_the_stored_lines
            what_one_process_learned_the_next_one_knows
            what_gates_learned_survives_the_daemon
            a_damaged_file_restores_nothing
            calls_beside_a_busy_process_teach_nothing
            an_exploring_client_holds_the_only_lease
            a_client_that_makes_a_call_now_and_then_explores_too
            a_lease_is_taken_from_a_client_that_rests
            a_lease_comes_back_when_its_holder_leaves
            nobody_explores_while_that_cant_be_written_down
            a_lock_reaches_every_client
            a_reset_reaches_every_client
            impossible_decisions_are_refused
            a_client_that_does_not_read_is_dropped_and_nobody_notices;
        client_workers:
            another_engine_is_served_at_once_and_measured_by_its_clients_worker
            it_can_be_turned_off
            one_that_fails_is_told_of_and_the_own_worker_measures
            the_same_engine_needs_no_other_worker
            a_worker_that_cannot_be_named_is_refused;
        commands:
            a_person_sees_and_steers_what_attached_processes_do
            each_client_is_told_to_be_served_from_the_nearest_source
            what_splitting_gained_is_told_with_its_basis
            a_person_sees_why_nothing_is_measured_and_decides;
        supervised:
            on_the_managers_socket_clients_wait_for_the_daemon
            who_waits_for_a_daemon_that_can_not_start_is_told_why
            a_command_line_that_can_not_be_read_is_given_up_too
            a_socket_that_is_handed_over_is_used_without_a_word
            a_panic_is_kept_with_its_time_and_counts
            a_socket_that_can_not_be_taken_over_is_given_up_too
            a_daemon_beside_another_says_which_one_runs
            a_replaced_program_is_started_again_and_clients_ride_through
            what_is_logged_can_be_changed_and_last_words_are_kept;
        sensors:
            a_script_counts_at_the_next_look
            a_bad_script_changes_nothing_and_is_logged
            sensors_that_cannot_be_are_refused
            attached_clients_hear_of_other_conditions
            a_calibration_belongs_to_the_scripted_conditions;
        interop:
            python_grpc_speaks_with_it;
    };
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
