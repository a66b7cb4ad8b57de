//! Tests with peers that are killed, stopped, restarted, cut off or short of resources: errors must
//! come in time, and nothing may be left behind.
//!
//! `HANDOVER_LONG=1` kills 200 peers of each side over each transport instead of a few.

mod apart;
#[path = "../raw/fork.rs"]
mod fork;
mod house;
mod kills;
mod scarce;
mod stages;
mod stops;

use house::Belongings;
use std::process::ExitCode;
use std::time::Instant;

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("a_server_that_is_killed_is_an_error_in_time", kills::servers_are_killed),
    ("a_client_that_is_killed_is_forgotten_in_time", kills::clients_are_killed),
    ("an_owner_that_is_killed_in_a_transfer_is_an_error_in_time", kills::owners_are_killed),
    ("memory_comes_back_from_a_peer_that_is_killed_in_a_transfer", kills::movers_are_killed),
    ("who_is_killed_within_a_greeting_is_an_error_in_time", kills::greeters_are_killed),
    ("peer_whose_sockets_another_process_holds_open_is_gone_when_it_ends", kills::held_open),
    ("a_kill_at_each_stage_of_a_call_is_an_error_in_time", stages::of_a_call),
    ("a_kill_at_each_stage_of_a_transfer_is_an_error_in_time", stages::of_a_transfer),
    ("what_was_answered_before_a_kill_arrives", stages::answers_sent_before_a_kill_arrive),
    (
        "a_server_that_is_stopped_does_not_stop_a_deadline",
        stops::calls_to_a_stopped_server_time_out_and_later_ones_succeed,
    ),
    ("an_owner_that_is_stopped_does_not_stop_a_deadline", stops::an_owner_is_stopped),
    (
        "a_server_that_was_started_again_is_found_again",
        stops::client_gets_an_error_and_reconnects_when_its_server_restarts,
    ),
    ("forked_child_that_drops_a_server_leaves_it_to_the_parent", stops::child_drops_a_server),
    ("who_has_no_descriptors_or_memory_is_told_so", scarce::limits_are_told),
    ("a_server_short_of_descriptors_takes_the_next_when_one_leaves", scarce::places_are_freed),
    ("a_full_file_system_is_told_of_and_shared_memory_needs_none", scarce::folders_are_full),
    ("bulk_transfers_between_pid_namespaces_arrive_whole", apart::pid_namespaces),
    ("two_network_namespaces_talk_and_a_cable_that_is_pulled_is_noticed", apart::namespaces),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", how] => return house::serve(how),
        ["call", address] => return kills::call(address),
        ["own", how] => return kills::own(how),
        ["move", address] => return kills::move_memory(address),
        ["attach", address] => return kills::attach(address),
        ["greet", address] => return kills::greet(address),
        ["listen", how] => return stages::listen(how),
        ["die", how] => return stages::die(how),
        ["ask", address] => return stages::ask(address),
        ["scarce", address] => return scarce::scarce(address),
        ["few", how] => return scarce::few(how),
        ["full", folder] => return scarce::full(folder),
        ["apart", ""] => return apart::here(),
        ["there", address] => return apart::there(address),
        ["transfer", address] => return apart::transfer(address),
        ["--list", ..] => {
            TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let wanted: Vec<&&str> = words.iter().filter(|it| !it.starts_with('-')).collect();
    let mut passed = 0;
    for (name, test) in TESTS {
        if wanted.is_empty() || wanted.iter().any(|it| name.contains(**it)) {
            let before = Belongings::now();
            let began = Instant::now();
            test();
            assert_eq!(Belongings::now(), before, "{name} leaves something behind");
            println!("test {name} ... ok ({:.1} s)", began.elapsed().as_secs_f64());
            passed += 1;
        }
    }
    println!("test result: ok. {passed} passed; 0 failed");
    ExitCode::SUCCESS
}
