//! Statistics of calls by procedure, and the observer of single calls.

use super::call_monitor::{CallOutcome, CallRole};
use crate::clock;
use crate::engine::{Method, PeerKey};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::HashMap;

/// Maximum latency that the histograms record, in ns: an hour. Longer calls count as an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Number of significant decimal digits of recorded latencies.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Completed call of this endpoint, as passed to an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObservedCall<'a> {
    /// Role of this endpoint in the call.
    pub side: CallRole,
    /// Procedure that was called.
    pub method: Method,
    /// Name of the procedure, if it is registered here or was named by
    /// [`Endpoint::name_method`](crate::Endpoint::name_method).
    pub name: Option<&'a str>,
    /// Peer at the other end of the call.
    pub peer: PeerKey,
    /// Length of the arguments, in bytes.
    pub arguments_bytes: usize,
    /// Length of the result, or of the text of a refusal, in bytes.
    pub result_bytes: usize,
    /// Duration of the call, in ns. For the caller, from the start of the call to the arrival of
    /// the answer. For the server, from the start of the handling to the answer, including the wait
    /// in the pool's queue, but not a wait before that as a deferred request.
    pub took_ns: u64,
    /// Outcome of the call.
    pub ending: CallOutcome,
}

/// Callback for each completed call.
pub(crate) type Observer = dyn FnMut(&ObservedCall<'_>) + Send;

/// Statistics of one procedure's calls, in one role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CallReport {
    /// Role of this endpoint in the calls.
    pub side: CallRole,
    /// Name of the procedure. If this endpoint does not know it, the hexadecimal hash of the name.
    pub name: String,
    /// Provider number of the procedure.
    pub provider: u16,
    /// Number of completed calls.
    pub count: u64,
    /// Number of calls that failed.
    pub failed_count: u64,
    /// Total length of arguments, in bytes.
    pub arguments_bytes: u64,
    /// Total length of results and refusals, in bytes.
    pub result_bytes: u64,
    /// Quantiles of the calls' latencies, in ns.
    pub latency_ns: Quantiles,
}

/// Quantiles of latencies, in ns, with two significant digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Quantiles {
    /// Minimum latency, in ns.
    pub min: u64,
    /// Median latency, in ns.
    pub p50: u64,
    /// 90th percentile of the latencies, in ns.
    pub p90: u64,
    /// 99th percentile of the latencies, in ns.
    pub p99: u64,
    /// 99.9th percentile of the latencies, in ns.
    pub p999: u64,
    /// Maximum latency, in ns.
    pub max: u64,
}

impl Quantiles {
    fn from_histogram(latencies: &Histogram<u64>) -> Self {
        if latencies.is_empty() {
            return Self::default();
        }
        let at = |quantile| latencies.value_at_quantile(quantile);
        let (min, max) = (latencies.min(), latencies.max());
        Self { min, p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max }
    }
}

/// Statistics of one procedure's calls, in one role.
#[derive(Debug)]
struct CallCounts {
    failed_count: u64,
    arguments_bytes: u64,
    result_bytes: u64,
    latencies: Histogram<u64>,
}

/// Key of a call that has started. The role is part of the key because caller and server may be the
/// same endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CallKey {
    side: CallRole,
    peer: PeerKey,
    call: u64,
}

/// Call that has started and has not ended.
#[derive(Debug, Clone, Copy)]
struct ActiveCall {
    method: Method,
    arguments_bytes: usize,
    started_ticks: u64,
}

/// Statistics of calls, and the calls under way.
#[derive(Default)]
pub(crate) struct Monitor {
    under_way: HashMap<CallKey, ActiveCall>,
    calls: HashMap<(CallRole, Method), CallCounts>,
    names: HashMap<Method, String>,
    observer: Option<Box<Observer>>,
}

impl Monitor {
    pub(crate) fn set_observer(&mut self, observer: Box<Observer>) {
        self.observer = Some(observer);
    }

    pub(crate) fn name_method(&mut self, name: &str, provider: u16) {
        self.names.insert(Method::new(name).with_provider(provider), name.to_owned());
    }

    /// Records that a call was started by this endpoint, or has arrived here.
    #[cold]
    pub(crate) fn record_start(
        &mut self,
        side: CallRole,
        peer: PeerKey,
        call: u64,
        method: u64,
        bytes: usize,
    ) {
        let (method, started_ticks) = (Method::from_word(method), clock::ticks());
        let begun = ActiveCall { method, arguments_bytes: bytes, started_ticks };
        self.under_way.insert(CallKey { side, peer, call }, begun);
    }

    /// Records the end of a call: adds it to the statistics, and passes it to the observer. Has no
    /// effect if the start was not recorded.
    #[cold]
    pub(crate) fn record_end(
        &mut self,
        side: CallRole,
        peer: PeerKey,
        call: u64,
        bytes: usize,
        ending: CallOutcome,
    ) {
        let Some(begun) = self.under_way.remove(&CallKey { side, peer, call }) else { return };
        let ActiveCall { method, arguments_bytes, started_ticks } = begun;
        let took_ns = clock::ns_from_ticks(clock::ticks().saturating_sub(started_ticks));
        let calls = self.calls.entry((side, method)).or_insert_with(|| CallCounts {
            failed_count: 0,
            arguments_bytes: 0,
            result_bytes: 0,
            // These constants are valid bounds for the histogram.
            latencies: Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)
                .unwrap_or_else(|_| {
                    unreachable!("the constant bounds of a histogram were refused")
                }),
        });
        calls.failed_count += u64::from(ending != CallOutcome::Result);
        calls.arguments_bytes += arguments_bytes as u64;
        calls.result_bytes += bytes as u64;
        calls.latencies.saturating_record(took_ns);
        if let Some(observer) = &mut self.observer {
            let name = self.names.get(&method).map(String::as_str);
            let result_bytes = bytes;
            observer(&ObservedCall {
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

    /// Records that all calls over a closed connection have failed.
    #[cold]
    pub(crate) fn remove_peer(&mut self, peer: PeerKey) {
        let ended: Vec<CallKey> =
            self.under_way.keys().filter(|key| key.peer == peer).copied().collect();
        for CallKey { side, peer, call } in ended {
            self.record_end(side, peer, call, 0, CallOutcome::Disconnected);
        }
    }

    /// Returns the statistics of all procedures, sorted by role, name and provider.
    pub(crate) fn reports_by_method(&self) -> Vec<CallReport> {
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
                latency_ns: Quantiles::from_histogram(&calls.latencies),
            })
            .collect();
        reports.sort_by(|a, b| (a.side, &a.name, a.provider).cmp(&(b.side, &b.name, b.provider)));
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerKey = PeerKey { slot: 3, generation: 1 };
    const ECHO: Method = Method::new("echo").with_provider(2);

    #[test]
    fn calls_are_counted_by_role_and_named_if_the_name_is_known() {
        let mut monitor = Monitor::default();
        monitor.name_method("echo", 2);
        for (side, bytes) in [(CallRole::Caller, 5), (CallRole::Server, 7)] {
            monitor.record_start(side, PEER, 9, ECHO.word(), bytes);
        }
        assert_eq!(monitor.under_way.len(), 2);
        monitor.record_end(CallRole::Caller, PEER, 9, 50, CallOutcome::Result);
        monitor.record_end(CallRole::Server, PEER, 9, 70, CallOutcome::Refused);
        monitor.record_end(CallRole::Server, PEER, 10, 1, CallOutcome::Result);
        let unnamed = Method::new("other");
        monitor.record_start(CallRole::Server, PEER, u64::MAX, unnamed.word(), 1);
        monitor.record_end(CallRole::Server, PEER, u64::MAX, 0, CallOutcome::Result);
        let reports = monitor.reports_by_method();
        let rows: Vec<_> = reports
            .iter()
            .map(|it| (it.side, it.name.as_str(), it.provider, it.count, it.failed_count))
            .collect();
        let hexadecimal = format!("{:#014x}", unnamed.word() >> 16);
        assert_eq!(
            rows,
            [
                (CallRole::Caller, "echo", 2, 1, 0),
                (CallRole::Server, hexadecimal.as_str(), 0, 1, 0),
                (CallRole::Server, "echo", 2, 1, 1),
            ]
        );
        assert_eq!((reports[0].arguments_bytes, reports[0].result_bytes), (5, 50));
        assert_eq!((reports[2].arguments_bytes, reports[2].result_bytes), (7, 70));
        assert!(reports[0].latency_ns.min <= reports[0].latency_ns.max);
    }

    #[test]
    fn calls_under_way_with_a_peer_end_with_its_connection() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut monitor = Monitor::default();
        monitor
            .set_observer(Box::new(move |it| sender.send((it.ending, it.peer)).expect("received")));
        let other = PeerKey { slot: 4, ..PEER };
        monitor.record_start(CallRole::Caller, PEER, 1, ECHO.word(), 0);
        monitor.record_start(CallRole::Caller, other, 2, ECHO.word(), 0);
        monitor.remove_peer(PEER);
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [(CallOutcome::Disconnected, PEER)]);
        assert_eq!(monitor.under_way.len(), 1);
        assert_eq!(
            (monitor.reports_by_method()[0].count, monitor.reports_by_method()[0].failed_count),
            (1, 1)
        );
    }
}
