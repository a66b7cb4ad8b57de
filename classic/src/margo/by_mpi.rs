//! Exchange of rank 0's address through MPI itself, for builds with MPI on hosts with the library.

use super::meeting::{local_address_towards, machine_id, parse_reachable_address};
use crate::ranks::{Rank, receive_text, send_text};
use anyhow::{Context, bail};
use handover_program::console::print_error;
use handover_rpc::{Address, EndpointError};
use handover_suite::mpi::Mpi;
use std::net::SocketAddr;

/// Initialised MPI library, through which the ranks exchange the address of rank 0.
#[derive(Debug)]
pub struct MpiMeeting {
    world: Mpi,
}

/// Initialises MPI. Returns `None` if no MPI launcher has started this rank or the library is not
/// found. The library is then missing for both ranks of this host, and they can meet through a
/// file.
pub fn init_mpi(rank: &Rank) -> anyhow::Result<Option<MpiMeeting>> {
    if !rank.is_started_by_mpi() {
        return Ok(None);
    }
    let world = match Mpi::init() {
        Ok(world) => world,
        Err(why) => {
            print_error(format_args!("MPI is not available, the ranks meet through a file: {why}"));
            return Ok(None);
        }
    };
    rank.check_mpi(&world)?;
    Ok(Some(MpiMeeting { world }))
}

impl MpiMeeting {
    /// Listens on an address that rank 1 can reach, and sends the address to rank 1. Called by rank
    /// 0. Finalises MPI.
    pub fn send_address(
        self,
        at: Address,
        listen: impl FnOnce(&Address) -> Result<Address, EndpointError>,
    ) -> anyhow::Result<()> {
        let message = receive_text(&self.world, 1)?;
        let (machine_1, host_1) = message
            .split_once(' ')
            .with_context(|| format!("cannot parse the host of rank 1 in {message:?}"))?;
        let is_elsewhere = machine_1 != machine_id();
        let here = || address_towards(host_1).map(|host| host.to_string());
        let listened = match at {
            Address::Tcp(place) if place.is_empty() && is_elsewhere => here().map(Address::Tcp),
            Address::Tls(place) if place.is_empty() && is_elsewhere => here().map(Address::Tls),
            Address::Ucx(place) if place.is_empty() && is_elsewhere => here().map(Address::Ucx),
            at => Ok(at),
        };
        let listened = listened.and_then(|at| Ok(listen(&at)?));
        // The other rank waits for a message in either case.
        let answer = match &listened {
            Ok(address) => format!("{} {address}", machine_id()),
            Err(_) => String::new(),
        };
        send_text(&self.world, 1, &answer)?;
        self.world.finalise()?;
        listened.map(drop)
    }

    /// Receives the address of rank 0. Called by rank 1. Finalises MPI.
    pub fn receive_address(self) -> anyhow::Result<Address> {
        let host = rustix::system::uname();
        let own = format!("{} {}", machine_id(), host.nodename().to_string_lossy());
        send_text(&self.world, 0, &own)?;
        let line = receive_text(&self.world, 0)?;
        self.world.finalise()?;
        if line.is_empty() {
            bail!("rank 0 has sent no address: it failed to listen");
        }
        parse_reachable_address(&line)
    }
}

/// Returns this host's address on the route to `host`, with port 0.
fn address_towards(host: &str) -> anyhow::Result<SocketAddr> {
    let (own, _) = local_address_towards((host, 9)).with_context(|| {
        format!(
            "cannot find the route to {host}, the host of rank 1; give an address of rank 0's host by \
             --rendezvous HOST:PORT"
        )
    })?;
    Ok(SocketAddr::new(own, 0))
}
