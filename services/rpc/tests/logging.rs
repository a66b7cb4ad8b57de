//! What is logged. A program of its own: the first thread that comes to a line decides who is asked about it.

use handover_rpc::{Config, Endpoint, LogLevel};
use std::sync::Mutex;
use std::time::Duration;
use tracing::span;

/// Counts lines by level.
#[derive(Default)]
struct Lines(Mutex<Vec<tracing::Level>>);

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
        self.0.lock().unwrap().push(*event.metadata().level());
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn as_much_is_logged_as_the_level_lets_through() {
    use tracing::Level;
    for (log_level, expected) in [
        (LogLevel::Trace, vec![Level::DEBUG, Level::DEBUG, Level::INFO, Level::INFO]),
        (LogLevel::Info, vec![Level::INFO, Level::INFO]),
        (LogLevel::Off, vec![]),
    ] {
        let lines: &'static Lines = Box::leak(Box::default());
        tracing::subscriber::with_default(lines, || {
            let config = Config { log_level, ..Config::default() };
            let mut endpoint = Endpoint::new(config).unwrap();
            let address = endpoint.listen(&"sm://".parse().unwrap()).unwrap();
            let itself = endpoint.connect(&address).unwrap();
            assert_eq!(endpoint.peers().count(), 2, "both ends");
            assert!(handover_rpc::Calling::disconnect(&mut endpoint, itself));
            while endpoint.peers().next().is_some() {
                endpoint.progress(Duration::from_millis(10));
            }
        });
        assert_eq!(*lines.0.lock().unwrap(), expected, "{log_level:?}");
    }
}
