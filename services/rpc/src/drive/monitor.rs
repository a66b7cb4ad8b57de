//! What calls there were, by procedure: how many, how long, and what somebody wants to know of each.
//!
//! Nothing of it is on the way of a call while nobody watches.

use crate::clock;
use crate::engine::{Method, Outcome, PeerKey, Refusal};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;

/// Longer calls count as so long: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Two digits of each latency are kept.
const DIGITS: u8 = 2;

/// Which side of a call an endpoint was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// It has asked.
    Caller,
    /// It was asked.
    Server,
}

/// How a call ended, as an observer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// With a result; a call that wants none: it was handled, or handed to the pool.
    Result,
    /// With a refusal, of whichever kind.
    Refused,
    /// Its connection ended first.
    Gone,
    /// Its caller did not want it any more, or not for so long.
    GivenUp,
}

/// A call that has ended, as this side saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Observed<'a> {
    /// Which side this was.
    pub side: Side,
    /// The procedure.
    pub method: Method,
    /// Its name, where this side knows it: it is registered here, or was named
    /// ([`Endpoint::name_method`](crate::Endpoint::name_method)).
    pub name: Option<&'a str>,
    /// Who was at the other end.
    pub peer: PeerKey,
    /// How long the arguments were.
    pub arguments_bytes: usize,
    /// How long the result was, or what was said with the refusal.
    pub result_bytes: usize,
    /// From sending to the answer's arrival; or from the request's arrival until it was answered, with its time
    /// in the pool's queue.
    pub took_ns: u64,
    /// How it ended.
    pub ending: Ending,
}

/// What is called for each call that has ended.
pub(crate) type Observer = dyn FnMut(&Observed<'_>) + Send;

/// The calls of one procedure, on one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CallReport {
    /// Which side this was.
    pub side: Side,
    /// The name, or in hexadecimal what stands for it where this side does not know it.
    pub name: String,
    /// Of which provider.
    pub provider: u16,
    /// Calls that have ended.
    pub count: u64,
    /// Those of them that ended without a result.
    pub failed_count: u64,
    /// Bytes of all arguments.
    pub arguments_bytes: u64,
    /// Bytes of all results and refusals.
    pub result_bytes: u64,
    /// How long they took.
    pub latency_ns: Quantiles,
}

/// Of how long calls took, in ns, to two digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Quantiles {
    /// The shortest.
    pub min: u64,
    /// Half were no longer.
    pub p50: u64,
    /// 90 in 100 were no longer.
    pub p90: u64,
    /// 99 in 100 were no longer.
    pub p99: u64,
    /// 999 in 1000 were no longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

impl Quantiles {
    fn of(latencies: &Histogram<u64>) -> Self {
        if latencies.is_empty() {
            return Self::default();
        }
        let at = |quantile| latencies.value_at_quantile(quantile);
        let (min, max) = (latencies.min(), latencies.max());
        Self { min, p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max }
    }
}

#[derive(Debug)]
struct Calls {
    failed_count: u64,
    arguments_bytes: u64,
    result_bytes: u64,
    latencies: Histogram<u64>,
}

/// A call that has begun. Calls are counted by either side alone: both may be in one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    side: Side,
    peer: PeerKey,
    call: u64,
}

#[derive(Debug, Clone, Copy)]
struct Begun {
    method: Method,
    arguments_bytes: usize,
    at_ticks: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Monitor {
    under_way: HashMap<Key, Begun>,
    calls: HashMap<(Side, Method), Calls>,
    names: HashMap<Method, String>,
    observer: Option<Box<Observer>>,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Monitor {
    pub(crate) fn observe(&mut self, observer: Box<Observer>) {
        self.observer = Some(observer);
    }

    pub(crate) fn name(&mut self, name: &str, provider: u16) {
        self.names.insert(Method::named(name).of_provider(provider), name.to_owned());
    }

    /// A call is sent, or has arrived.
    #[cold]
    pub(crate) fn begin(
        &mut self,
        side: Side,
        peer: PeerKey,
        call: u64,
        method: u64,
        bytes: usize,
    ) {
        let (method, at_ticks) = (Method::of_word(method), clock::ticks());
        let begun = Begun { method, arguments_bytes: bytes, at_ticks };
        self.under_way.insert(Key { side, peer, call }, begun);
    }

    /// It has ended; nothing happens where it was not seen to begin.
    #[cold]
    pub(crate) fn end(
        &mut self,
        side: Side,
        peer: PeerKey,
        call: u64,
        bytes: usize,
        ending: Ending,
    ) {
        let Some(begun) = self.under_way.remove(&Key { side, peer, call }) else { return };
        self.count(side, peer, begun, bytes, ending);
    }

    /// As [`end`](Self::end), for an answer.
    #[cold]
    pub(crate) fn answered(&mut self, peer: PeerKey, call: u64, outcome: &Outcome, bytes: usize) {
        let ending = match outcome {
            Outcome::Result => Ending::Result,
            Outcome::Refused(_) => Ending::Refused,
            Outcome::Gone(_) => Ending::Gone,
        };
        self.end(Side::Caller, peer, call, bytes, ending);
    }

    /// As [`end`](Self::end), for what this side answers.
    #[cold]
    pub(crate) fn responded(
        &mut self,
        peer: PeerKey,
        call: u64,
        answer: Result<(), Refusal>,
        bytes: usize,
    ) {
        let ending = if answer.is_ok() { Ending::Result } else { Ending::Refused };
        self.end(Side::Server, peer, call, bytes, ending);
    }

    /// That connection has ended, and all calls on it.
    #[cold]
    pub(crate) fn gone(&mut self, peer: PeerKey) {
        let ended: Vec<Key> =
            self.under_way.keys().filter(|key| key.peer == peer).copied().collect();
        for Key { side, peer, call } in ended {
            self.end(side, peer, call, 0, Ending::Gone);
        }
    }

    fn count(&mut self, side: Side, peer: PeerKey, begun: Begun, bytes: usize, ending: Ending) {
        let Begun { method, arguments_bytes, at_ticks } = begun;
        let took_ns = clock::ns(clock::ticks().saturating_sub(at_ticks));
        let calls = self.calls.entry((side, method)).or_insert_with(|| Calls {
            failed_count: 0,
            arguments_bytes: 0,
            result_bytes: 0,
            // The bounds are constants that the histogram allows: an hour, two digits.
            latencies: Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)
                .unwrap_or_else(|_| unreachable!("1..=an hour, to two digits")),
        });
        calls.failed_count += u64::from(ending != Ending::Result);
        calls.arguments_bytes += arguments_bytes as u64;
        calls.result_bytes += bytes as u64;
        calls.latencies.saturating_record(took_ns);
        if let Some(observer) = &mut self.observer {
            let name = self.names.get(&method).map(String::as_str);
            let result_bytes = bytes;
            observer(&Observed {
                side,
                method,
                name,
                peer,
                arguments_bytes,
                result_bytes,
                took_ns,
                ending,
            });
        }
    }

    /// All procedures, by side, name and provider.
    pub(crate) fn report(&self) -> Vec<CallReport> {
        let name_of = |method: Method| match self.names.get(&method) {
            Some(name) => name.clone(),
            None => format!("{:#014x}", method.word() >> 16),
        };
        let mut reports: Vec<CallReport> = self
            .calls
            .iter()
            .map(|(&(side, method), calls)| CallReport {
                side,
                name: name_of(method),
                provider: method.provider(),
                count: calls.latencies.len(),
                failed_count: calls.failed_count,
                arguments_bytes: calls.arguments_bytes,
                result_bytes: calls.result_bytes,
                latency_ns: Quantiles::of(&calls.latencies),
            })
            .collect();
        reports.sort_by(|a, b| (a.side, &a.name, a.provider).cmp(&(b.side, &b.name, b.provider)));
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey { place: 3, generation: 1 };
    const ECHO: Method = Method::named("echo").of_provider(2);

    #[test]
    fn calls_are_told_apart_by_side_and_named_where_the_name_is_known() {
        let mut monitor = Monitor::default();
        monitor.name("echo", 2);
        for (side, bytes) in [(Side::Caller, 5), (Side::Server, 7)] {
            monitor.begin(side, PEER, 9, ECHO.word(), bytes);
        }
        assert_eq!(monitor.under_way.len(), 2);
        monitor.answered(PEER, 9, &Outcome::Result, 50);
        monitor.responded(PEER, 9, Err(Refusal::Failed), 70);
        monitor.responded(PEER, 10, Ok(()), 1);
        let unnamed = Method::named("other");
        monitor.begin(Side::Server, PEER, u64::MAX, unnamed.word(), 1);
        monitor.responded(PEER, u64::MAX, Ok(()), 0);
        let reports = monitor.report();
        let rows: Vec<_> = reports
            .iter()
            .map(|it| (it.side, it.name.as_str(), it.provider, it.count, it.failed_count))
            .collect();
        let hexadecimal = format!("{:#014x}", unnamed.word() >> 16);
        assert_eq!(
            rows,
            [
                (Side::Caller, "echo", 2, 1, 0),
                (Side::Server, hexadecimal.as_str(), 0, 1, 0),
                (Side::Server, "echo", 2, 1, 1),
            ]
        );
        assert_eq!((reports[0].arguments_bytes, reports[0].result_bytes), (5, 50));
        assert_eq!((reports[2].arguments_bytes, reports[2].result_bytes), (7, 70));
        assert!(reports[0].latency_ns.min <= reports[0].latency_ns.max);
    }

    #[test]
    fn what_was_under_way_with_a_peer_ends_with_it() {
        let (told, heard) = std::sync::mpsc::channel();
        let mut monitor = Monitor::default();
        monitor.observe(Box::new(move |it| told.send((it.ending, it.peer)).expect("heard")));
        let other = PeerKey { place: 4, ..PEER };
        monitor.begin(Side::Caller, PEER, 1, ECHO.word(), 0);
        monitor.begin(Side::Caller, other, 2, ECHO.word(), 0);
        monitor.gone(PEER);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [(Ending::Gone, PEER)]);
        assert_eq!(monitor.under_way.len(), 1);
        assert_eq!((monitor.report()[0].count, monitor.report()[0].failed_count), (1, 1));
    }
}
