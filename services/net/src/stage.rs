//! Stages of a message, each with a probe site.
//!
//! Without the feature `probes`, and under Miri, a stage does nothing, except in this crate's own
//! tests, which record it. Sites stand next to system calls or once per message; a disabled site is
//! one instruction.

use crate::engine::ReplyBuffer;

/// Emits a probe site if the feature is on, and records the stage in tests. The value is evaluated
/// only while the site is enabled.
macro_rules! site {
    ($stage:ident, $name:literal, $value:expr) => {
        handover_base::stage::stage!("probes", $name, $value);
        #[cfg(test)]
        tests::record(tests::Stage::$stage);
    };
}

/// Records that the kernel has reported the connection in slot `index` as readable.
#[inline(always)]
pub(crate) fn record_readable(index: u32) {
    site!(Readable, "net.readable", index as usize);
}

/// Records a read of `bytes_count` bytes from a socket.
#[inline(always)]
pub(crate) fn record_read(bytes_count: usize) {
    site!(Read, "net.read", bytes_count);
}

/// Records that the codec has found a complete message.
#[inline(always)]
pub(crate) fn record_decoded(message_bytes: usize) {
    site!(Decoded, "net.decoded", message_bytes);
}

/// Records that the handler has returned after handling a message.
#[inline(always)]
pub(crate) fn record_dispatched(message_bytes: usize) {
    site!(Dispatched, "net.dispatched", message_bytes);
}

/// Records that the handler has written a reply. The recorded value is the size of all replies to
/// the same read.
#[inline(always)]
pub(crate) fn record_written(replies: &ReplyBuffer) {
    site!(Written, "net.written", replies.len());
}

/// Records that the kernel has accepted bytes to send.
#[inline(always)]
pub(crate) fn record_sent(bytes_count: usize) {
    site!(Sent, "net.sent", bytes_count);
}

#[cfg(test)]
mod tests {
    use crate::engine::LinesCodec;
    use crate::{CloseReason, Config, Conn, ConnKey, Connections, Handler, Reactor, Stopper};
    use Stage::{Decoded, Dispatched, Read, Readable, Sent, Written};
    use std::cell::RefCell;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Stage {
        Readable,
        Read,
        Decoded,
        Dispatched,
        Written,
        Sent,
    }

    thread_local! {
        /// Stages that this thread has recorded, in order.
        static PASSED: RefCell<Vec<Stage>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn record(stage: Stage) {
        PASSED.with_borrow_mut(|passed| passed.push(stage));
    }

    struct Echo(Option<Stopper<()>>);

    impl Handler for Echo {
        type Codec = LinesCodec;
        type Data = ();

        fn on_message(&mut self, conn: &mut Conn<'_, LinesCodec, ()>, line: &[u8]) {
            conn.send(line).expect("queue a line");
        }

        fn on_close(
            &mut self,
            _: &mut Connections<'_, LinesCodec, ()>,
            _: ConnKey,
            (): (),
            _: &CloseReason,
        ) {
            self.0.as_ref().expect("stopper is set before run").stop(Duration::ZERO);
        }
    }

    #[test]
    fn two_messages_of_one_read_pass_through_all_stages_and_are_sent_together() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("read the local address"))
            .expect("a peer");
        let far = listener.accept().expect("accept the connection").0;
        near.write_all(b"one\ntwo\n").expect("send two lines");
        let mut reactor = Reactor::new(Config::default(), LinesCodec::new(9), Echo(None))
            .expect("create a reactor");
        let stopper = reactor.stopper();
        reactor.handler_mut().0 = Some(stopper);
        reactor.adopt(far).expect("adopt a connection");
        near.shutdown(std::net::Shutdown::Write).expect("connected");
        reactor.run().expect("run the reactor");
        let each = [Decoded, Written, Dispatched];
        let expected = [&[Readable, Read][..], &each, &each, &[Sent]].concat();
        let passed = PASSED.take();
        assert_eq!(passed[..expected.len()], expected);
    }
}
