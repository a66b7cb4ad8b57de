//! Compared implementation: a request and its response by iceoryx2, both sides polling.

use super::PublishedAddress;
use super::calls::{CallMedium, Noop, VIA_SM, WAITS_BY_DEFAULT};
use crate::channels::PollPause;
use crate::floor::relay::RelayMedium;
use handover_harness::{Fault, Region, Setup};
use handover_record::Spec;
use iceoryx2::port::client::Client;
use iceoryx2::prelude::{LogLevel, Node, NodeBuilder, ipc, set_log_level};
use iceoryx2::service::port_factory::request_response::PortFactory;
use std::sync::atomic::{AtomicU64, Ordering};

/// Value sent instead of a call's number, to end the round.
const END: u64 = u64::MAX;

/// Opened service, which creates clients and servers.
type Service = PortFactory<ipc::Service, u64, (), u64, ()>;

/// Medium of round trips: a request-response service of iceoryx2.
pub(super) struct IceoryxMedium {
    /// Name of the service, published by the server.
    service_name: Region<PublishedAddress>,
    pause: PollPause,
}

/// Client of an iceoryx2 service, with the number of its last call.
pub(super) struct IceoryxCaller {
    client: Client<ipc::Service, u64, (), u64, ()>,
    call_number: u64,
    /// Node of the client, which must be dropped after the client.
    _node: Node<ipc::Service>,
}

/// Opens or creates the service `name`; returns its node, and the service.
fn open_service(name: &str) -> Result<(Node<ipc::Service>, Service), Fault> {
    // It writes to standard error that it found no configuration.
    set_log_level(LogLevel::Error);
    let node = NodeBuilder::new().create::<ipc::Service>().map_err(Fault::from_error)?;
    let name = name.try_into().map_err(Fault::from_error)?;
    let service = node.service_builder(&name).request_response::<u64, u64>();
    let service = service.open_or_create().map_err(Fault::from_error)?;
    Ok((node, service))
}

impl RelayMedium for IceoryxMedium {
    type Args = ();
    const SPEC: Spec = CallMedium::<Noop, VIA_SM, WAITS_BY_DEFAULT>::SPEC;
    type PingState = IceoryxCaller;

    fn setup((): &(), setup: &mut Setup) -> Result<Self, Fault> {
        Ok(Self { service_name: setup.shared_region()?, pause: PollPause::new(setup) })
    }

    fn new_ping_state(&self) -> Result<IceoryxCaller, Fault> {
        let (node, service) = open_service(&self.service_name.wait()?)?;
        let client = service.client_builder().create().map_err(Fault::from_error)?;
        Ok(IceoryxCaller { client, call_number: 0, _node: node })
    }

    #[inline(always)]
    fn round_trip(&self, caller: &mut IceoryxCaller) -> Result<(), Fault> {
        caller.call_number += 1;
        let pending = caller.client.send_copy(caller.call_number).map_err(Fault::from_error)?;
        loop {
            match pending.receive().map_err(Fault::from_error)? {
                Some(number) if *number == caller.call_number => return Ok(()),
                Some(number) => {
                    let sent = caller.call_number;
                    return Err(Fault::new(format!(
                        "received the response {}, expected {sent}",
                        *number
                    )));
                }
                None => self.pause.pause_once(),
            }
        }
    }

    fn end(&self, caller: &mut IceoryxCaller) -> Result<(), Fault> {
        caller.client.send_copy(END).map(drop).map_err(Fault::from_error)
    }

    fn echo(&self) -> Result<u64, Fault> {
        static SERVICES_COUNT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers must differ.
        let number = SERVICES_COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("handover/noop/{}/{number}", std::process::id());
        let (_node, service) = open_service(&name)?;
        let server = service.server_builder().create().map_err(Fault::from_error)?;
        self.service_name.publish(&name)?;
        let mut turns = 0;
        loop {
            let Some(request) = server.receive().map_err(Fault::from_error)? else {
                self.pause.pause_once();
                continue;
            };
            if *request == END {
                return Ok(turns);
            }
            turns += 1;
            request.send_copy(*request).map_err(Fault::from_error)?;
        }
    }
}
