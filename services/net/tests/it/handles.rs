//! Auto traits (`Send`, `Sync`) of handles and handlers.

use handover_base::sync::auto_traits;
use handover_net::engine::{BytesCodec, LinesCodec};
use handover_net::{
    Conn, ConnHandle, ConnKey, ConnectOptions, Connections, Handler, ListenOptions, Net, Reactor,
    Stopper, tls,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::MutexGuard;

/// Type that is `Sync` and not `Send`.
type Lent = MutexGuard<'static, u8>;

/// Handler that is `Send` and not `Sync`, with connection data of the same kind.
struct Counting(#[expect(dead_code, reason = "its type alone matters")] Cell<u8>);

impl Handler for Counting {
    type Codec = BytesCodec;
    type Data = Cell<u8>;

    fn on_message(&mut self, _conn: &mut Conn<'_, BytesCodec, Cell<u8>>, _message: &[u8]) {}
}

#[test]
fn handle_is_send_and_sync_if_data_is_send() {
    assert_eq!(auto_traits!((ConnHandle<Cell<u8>>, Stopper<Cell<u8>>)), "Send + Sync");
    assert_eq!(auto_traits!(ConnHandle<Lent>), "neither");
    assert_eq!(auto_traits!(ConnHandle<Rc<u8>>), "neither");
    assert_eq!(auto_traits!(Stopper<Lent>), "neither");
    assert_eq!(auto_traits!(Stopper<Rc<u8>>), "neither");
    assert_eq!(auto_traits!((ConnKey, ConnectOptions, ListenOptions)), "Send + Sync");
    assert_eq!(auto_traits!((tls::TlsServerConfig, tls::TlsClientConfig)), "Send + Sync");
}

#[test]
fn reactor_and_conn_auto_traits_follow_handler_and_data() {
    assert_eq!(auto_traits!(Net<Counting>), "Send + Sync", "handlers stay with their threads");
    assert_eq!(auto_traits!(Reactor<Counting>), "Send");
    assert_eq!(auto_traits!(Conn<'static, LinesCodec, u8>), "Send + Sync");
    assert_eq!(auto_traits!(Conn<'static, LinesCodec, Cell<u8>>), "Send");
    assert_eq!(auto_traits!(Conn<'static, LinesCodec, Rc<u8>>), "neither");
    assert_eq!(auto_traits!(Connections<'static, LinesCodec, Cell<u8>>), "Send");
    assert_eq!(auto_traits!(Connections<'static, LinesCodec, Rc<u8>>), "neither");
}
