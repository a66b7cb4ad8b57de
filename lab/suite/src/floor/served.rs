//! One server that answers many clients, each of which waits for its answer: the floor of servers.

use super::wait_word::{WaitLine, WaitMode};
use crate::common::{ClientsArgs, Tally, time_server};
use handover_harness::{Fault, Handover, Participant, Region, Role, Samples, Setup};
use handover_record::{Spec, Wait};
use zerocopy::FromZeros;

const CLIENTS_MAX: usize = 1000;

/// Block of memory that the server shares with all clients. It has a request word and an answer
/// word for each client, and a tally.
#[derive(FromZeros)]
#[repr(C)]
struct SharedWords {
    words: [WaitLine<2>; CLIENTS_MAX],
    tally: Tally,
}

/// Flag that marks the last answer to a client, and ends the round.
const END: u32 = 1 << 31;

/// Floor: a server that polls its clients' words round robin.
pub(crate) struct WordServer {
    shared: Region<SharedWords>,
    /// `true` for each client that sends requests. These are the first ones on each CPU other than
    /// the server's; a second client on a CPU would only add context switches.
    sends_requests: Vec<bool>,
    mode: WaitMode,
}

impl Handover for WordServer {
    type Args = ClientsArgs;
    const SPEC: Spec = Spec::new(
        "floor/served",
        "request word and answer word of one of clients_count clients, with a server that polls on its own CPU",
    )
    .hands_over()
    .batched();
    const PROCESSES: bool = true;

    fn roles(args: &ClientsArgs) -> Vec<Role> {
        Role::server_and_clients(args.clients_count)
    }

    fn setup(args: &ClientsArgs, setup: &mut Setup) -> Result<Self, Fault> {
        let (server, clients) = setup
            .cpus()
            .split_first()
            .ok_or_else(|| Fault::new("the placement has no CPU for the server"))?;
        let mut taken = vec![*server];
        let mut sends_requests: Vec<bool> = clients
            .iter()
            .map(|cpu| {
                let is_free = !taken.contains(cpu);
                taken.push(*cpu);
                is_free
            })
            .collect();
        let is_crowded = !sends_requests.contains(&true);
        if is_crowded && let Some(first) = sends_requests.first_mut() {
            *first = true;
        }
        sends_requests.resize(args.clients_count as usize, false);
        let mode = WaitMode::new(Wait::SpinThenSleep, setup).with_yields(is_crowded);
        Ok(Self { shared: setup.shared_region()?, sends_requests, mode })
    }

    fn play(&self, participant: Participant, out: &mut Samples) -> Result<(), Fault> {
        if let Some(client) = participant.index.checked_sub(1) {
            if !self.sends_requests[client] {
                return Ok(());
            }
            let [ask, answer] = &self.shared.words[client].0;
            let mut number = 0;
            loop {
                number += 1;
                ask.publish(number, self.mode);
                let is_next = |it: u32| it == number || it & END != 0;
                let (answered, _) = answer.wait(self.mode, is_next);
                if answered & END != 0 {
                    self.shared.tally.add_received(u64::from(answered & !END));
                    return Ok(());
                }
            }
        }
        let words = self.shared.words.iter().zip(&self.sends_requests).filter(|(_, sends)| **sends);
        let words: Vec<&WaitLine<2>> = words.map(|(line, _)| line).collect();
        let mut last = vec![0; words.len()];
        let mut at = 0;
        let serve = |count: u64| {
            let mut left = count;
            while left > 0 {
                let [ask, answer] = &words[at].0;
                let number = ask.value();
                if number != last[at] {
                    last[at] = number;
                    answer.publish(number, self.mode);
                    left -= 1;
                }
                at = if at + 1 == words.len() { 0 } else { at + 1 };
                if at == 0 && left > 0 {
                    self.mode.pause().pause_once();
                }
            }
        };
        time_server(out, words.len(), serve);
        self.shared.tally.add_sent(last.iter().map(|&number| u64::from(number)).sum());
        for (line, last) in words.iter().zip(last) {
            line.0[1].publish(END | last, self.mode);
        }
        Ok(())
    }

    fn check_round(&self) -> Result<(), Fault> {
        self.shared.tally.verify()
    }
}
