//! One server that answers many clients, each of which waits for its answer: the floor of servers.

use super::bed::{Bed, Manner};
use handover_base::clock;
use handover_base::sync::shared::{AtomicU64, Ordering};
use handover_harness::{Fault, Handover, Party, Region, Rig, Role, Samples};
use handover_record::{Spec, Wait, args};
use zerocopy::FromZeros;

/// Maximum number of clients.
const CLIENTS_MAX: usize = 1000;

args! {
    /// Number of clients.
    pub struct Asking {
        /// Clients, each of which waits for the answer before it asks again.
        clients_count: u32 = 10 (smoke 3, range 1..=1000)
    }
}

/// A word to the server and one back.
#[derive(FromZeros)]
#[repr(C)]
struct Desk([Bed; 2]);

/// State shared by all participants.
#[derive(FromZeros)]
#[repr(C)]
struct Desks {
    desks: [Desk; CLIENTS_MAX],
    asked: AtomicU64,
    answered: AtomicU64,
}

/// Flag in the last answer: the round is over.
const END: u32 = 1 << 31;

/// A server that polls the words of its clients in turn.
pub(crate) struct Served {
    shared: Region<Desks>,
    /// `true` for each client that sends requests: the first on each CPU that is not the server's.
    /// Further clients would only alternate with it, at the cost of a context switch.
    asks: Vec<bool>,
    manner: Manner,
}

impl Handover for Served {
    type Args = Asking;
    const SPEC: Spec = Spec {
        id: "floor/served",
        what: "a word of one of clients_count clients and one back, one on each CPU beside the server that polls",
        hands_over: true,
        batched: true,
        file: file!(),
        line: line!(),
        ..Spec::DEFAULT
    };
    const PROCESSES: bool = true;

    fn roles(args: &Asking) -> Vec<Role> {
        let mut roles = vec![Role::measured("server")];
        roles.resize(1 + args.clients_count as usize, Role::serving("client"));
        roles
    }

    fn rig(args: &Asking, rig: &mut Rig) -> Result<Self, Fault> {
        let (server, clients) = rig.cpus().split_first().ok_or_else(|| Fault::new("no CPU"))?;
        let mut taken = vec![*server];
        let mut asks: Vec<bool> = clients
            .iter()
            .map(|cpu| {
                let is_free = !taken.contains(cpu);
                taken.push(*cpu);
                is_free
            })
            .collect();
        let is_crowded = !asks.contains(&true);
        if is_crowded && let Some(first) = asks.first_mut() {
            *first = true;
        }
        asks.resize(args.clients_count as usize, false);
        let manner = Manner::of(Wait::SpinThenSleep, rig).crowded(is_crowded);
        Ok(Self { shared: rig.region()?, asks, manner })
    }

    fn play(&self, party: Party, out: &mut Samples) -> Result<(), Fault> {
        if let Some(client) = party.index.checked_sub(1) {
            if !self.asks[client] {
                return Ok(());
            }
            let Desk([ask, answer]) = &self.shared.desks[client];
            let mut number = 0;
            loop {
                number += 1;
                ask.hand(number, self.manner);
                let is_next = |it: u32| it == number || it & END != 0;
                let (answered, _) = answer.wait(self.manner, is_next);
                if answered & END != 0 {
                    // Relaxed: read when all participants have ended.
                    self.shared.asked.fetch_add(u64::from(answered & !END), Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        let desks = self.shared.desks.iter().zip(&self.asks).filter(|(_, asks)| **asks);
        let desks: Vec<&Desk> = desks.map(|(desk, _)| desk).collect();
        let mut last = vec![0; desks.len()];
        let mut at = 0;
        let mut serve = |count: u64| {
            let mut left = count;
            while left > 0 {
                let Desk([ask, answer]) = desks[at];
                let number = ask.value();
                if number != last[at] {
                    last[at] = number;
                    answer.hand(number, self.manner);
                    left -= 1;
                }
                at = if at + 1 == desks.len() { 0 } else { at + 1 };
                if at == 0 {
                    self.manner.give_way();
                }
            }
        };
        let requests_count = 4 * desks.len().max(16) as u64;
        // Clients that have just begun get into a steady state first.
        serve(requests_count);
        let mut none_yet = true;
        while out.running() || none_yet {
            none_yet = false;
            let began = clock::ticks();
            serve(requests_count);
            out.note_batch(0, clock::ticks().saturating_sub(began), requests_count);
        }
        let answered: u64 = last.iter().map(|&number| u64::from(number)).sum();
        // Relaxed: read when all participants have ended.
        self.shared.answered.store(answered, Ordering::Relaxed);
        for (Desk([_, answer]), last) in desks.iter().zip(last) {
            answer.hand(END | last, self.manner);
        }
        Ok(())
    }

    fn verify(&self) -> Result<(), Fault> {
        // Relaxed: all participants have ended.
        let asked = self.shared.asked.load(Ordering::Relaxed);
        let answered = self.shared.answered.load(Ordering::Relaxed);
        match answered > 0 && asked == answered {
            true => Ok(()),
            false => Err(Fault::new(format!("{answered} were answered, {asked} heard it"))),
        }
    }
}
