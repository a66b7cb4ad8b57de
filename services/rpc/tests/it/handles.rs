//! Checks of which handles are `Send` and `Sync`.

use handover_base::sync::auto_traits;
use handover_rpc::{
    BulkMemory, Call, CallbackContext, Caller, Context, Endpoint, Method, ObservedCall, Peer,
    PendingCall, Progress, Stopper, Timer, Transfer,
};
use std::rc::Rc;

#[test]
fn ids_and_handles_are_send_and_sync() {
    assert_eq!(auto_traits!((Peer, Method, Timer, Transfer)), "Send + Sync");
    assert_eq!(auto_traits!((Stopper, Caller, Progress)), "Send + Sync");
    assert_eq!(auto_traits!(BulkMemory), "Send + Sync");
    assert_eq!(auto_traits!(ObservedCall<'static>), "Send + Sync");
    // These handles contain no result: it is decoded from bytes by the caller of `wait`.
    assert_eq!(auto_traits!(Call<Rc<u8>>), "Send + Sync");
    assert_eq!(auto_traits!(PendingCall<Rc<u8>>), "Send + Sync");
}

#[test]
fn endpoint_is_send_but_not_sync() {
    assert_eq!(auto_traits!(Endpoint), "Send");
    assert_eq!(auto_traits!(Context<'static>), "Send");
    assert_eq!(auto_traits!(CallbackContext<'static>), "Send");
}
