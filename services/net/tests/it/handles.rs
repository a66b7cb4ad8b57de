//! Auto traits (`Send`, `Sync`) of handles and handlers.

use handover_base::sync::auto_traits;
use handover_net::engine::{Lines, Raw};
use handover_net::{Conn, Dial, Handle, Handler, Key, Listen, Net, Reactor, Room, Stopper, tls};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::MutexGuard;

/// Type that is `Sync` and not `Send`.
type Lent = MutexGuard<'static, u8>;

/// Handler that is `Send` and not `Sync`, with connection data of the same kind.
struct Counting(#[expect(dead_code, reason = "its type alone matters")] Cell<u8>);

impl Handler for Counting {
    type Codec = Raw;
    type Data = Cell<u8>;

    fn on_message(&mut self, _conn: &mut Conn<'_, Raw, Cell<u8>>, _message: &[u8]) {}
}

#[test]
fn handle_is_send_and_sync_if_data_is_send() {
    assert_eq!(auto_traits!((Handle<Cell<u8>>, Stopper<Cell<u8>>)), "Send + Sync");
    assert_eq!(auto_traits!(Handle<Lent>), "neither");
    assert_eq!(auto_traits!(Handle<Rc<u8>>), "neither");
    assert_eq!(auto_traits!(Stopper<Lent>), "neither");
    assert_eq!(auto_traits!(Stopper<Rc<u8>>), "neither");
    assert_eq!(auto_traits!((Key, Dial, Listen)), "Send + Sync");
    assert_eq!(auto_traits!((tls::Server, tls::Client)), "Send + Sync");
}

#[test]
fn reactor_and_conn_auto_traits_follow_handler_and_data() {
    assert_eq!(auto_traits!(Net<Counting>), "Send + Sync", "handlers stay with their threads");
    assert_eq!(auto_traits!(Reactor<Counting>), "Send");
    assert_eq!(auto_traits!(Conn<'static, Lines, u8>), "Send + Sync");
    assert_eq!(auto_traits!(Conn<'static, Lines, Cell<u8>>), "Send");
    assert_eq!(auto_traits!(Conn<'static, Lines, Rc<u8>>), "neither");
    assert_eq!(auto_traits!(Room<'static, Lines, Cell<u8>>), "Send");
    assert_eq!(auto_traits!(Room<'static, Lines, Rc<u8>>), "neither");
}
