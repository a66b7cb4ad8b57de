//! Test of the log lines of rpc, in an executable of its own: tracing caches its decision about a
//! line when a thread first reaches it.

use handover_rpc::{Config, Endpoint, LogLevel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tracing::span;

/// Lock under which each test runs: an event that is first reached by another thread, just when a
/// subscriber is installed, stays disabled for that subscriber.
static ALONE: Mutex<()> = Mutex::new(());

/// Log lines by level, with the reason that they contain.
#[derive(Default)]
struct Lines(Mutex<Vec<(tracing::Level, String)>>);

/// Visitor for the field `why` of a log line.
struct Why<'a>(&'a mut String);

impl tracing::field::Visit for Why<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "why" {
            *self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for &'static Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "handover_rpc"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut why = String::new();
        event.record(&mut Why(&mut why));
        self.0.lock().unwrap().push((*event.metadata().level(), why));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn log_level_selects_the_logged_messages() {
    use tracing::Level;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (log_level, expected) in [
        (LogLevel::Trace, vec![Level::DEBUG, Level::DEBUG, Level::INFO, Level::INFO]),
        (LogLevel::Info, vec![Level::INFO, Level::INFO]),
        (LogLevel::Off, vec![]),
    ] {
        let lines: &'static Lines = Box::leak(Box::default());
        tracing::subscriber::with_default(lines, || {
            let config = Config::default().log_level(log_level);
            let mut endpoint = Endpoint::new(config).unwrap();
            let address = endpoint.listen(&"sm://".parse().unwrap()).unwrap();
            let itself = endpoint.connect(&address).unwrap();
            assert_eq!(endpoint.peers().count(), 2, "both ends");
            assert!(handover_rpc::Calling::disconnect(&mut endpoint, itself));
            while endpoint.peers().next().is_some() {
                endpoint.progress(Duration::from_millis(10));
            }
        });
        let levels: Vec<_> = lines.0.lock().unwrap().iter().map(|it| it.0).collect();
        assert_eq!(levels, expected, "{log_level:?}");
    }
}

#[test]
fn failed_authentication_is_logged_with_its_reason() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let lines: &'static Lines = Box::leak(Box::default());
    for (server, client, said) in [
        (
            Some(b"one secret of ours"),
            Some(b"another one of its"),
            "the shared secrets of the two endpoints differ: set the same secret_file on both",
        ),
        (
            Some(b"one secret of ours"),
            None,
            "the peer has no shared secret, this endpoint requires one",
        ),
        (
            None,
            Some(b"another one of its"),
            "the peer requires a shared secret, this endpoint has none: set secret_file",
        ),
    ] {
        let with = |secret: Option<&[u8; 18]>, log_level| {
            let mut endpoint = Endpoint::new(Config::default().log_level(log_level)).unwrap();
            if let Some(secret) = secret {
                endpoint.set_secret(secret).unwrap();
            }
            endpoint
        };
        // If the client reached the line first, in a thread without a subscriber, the line would be
        // disabled for all.
        let mut server = with(server, Config::default().log_level);
        let mut client = with(client, LogLevel::Off);
        let address = server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        let connecting = std::thread::spawn(move || client.connect(&address).is_err());
        tracing::subscriber::with_default(lines, || {
            while server.stats().turned_away_count == 0 {
                server.progress(Duration::from_millis(10));
            }
        });
        assert!(connecting.join().unwrap());
        let last = lines.0.lock().unwrap().pop();
        assert_eq!(last, Some((tracing::Level::WARN, format!("authentication failed: {said}"))));
    }
}
