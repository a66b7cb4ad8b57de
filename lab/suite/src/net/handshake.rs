//! Cost of a TLS handshake for the client and for the server.

use super::secured::generate_identity;
use handover_base::clock;
use handover_harness::{Fault, Samples, Setup, Workload};
use handover_net::engine::TlsState;
use handover_net::tls::{
    ClientOptions, Identity, RootCertificates, ServerOptions, ServerVerification, TlsClientConfig,
    TlsServerConfig,
};
use handover_record::{Part, Spec};

/// Index of the part with the server's cost of a full handshake.
const FULL_PART: usize = 0;
/// Index of the part with the server's cost of a resumed handshake.
const RESUMED_PART: usize = 1;
/// Index of the part with the client's cost of a full handshake.
const CLIENT_PART: usize = 2;

/// Time that the client and the server of a handshake have each spent, in clock ticks.
pub(super) struct HandshakeCost {
    pub(super) client_ticks: u64,
    pub(super) server_ticks: u64,
    pub(super) is_resumed: bool,
}

/// A client and a server of one TLS library, which perform handshakes without a network.
pub(super) trait HandshakeSides: Sized + 'static {
    /// State of a client, including its stored sessions.
    type Client;

    /// Creates the server with a new certificate.
    fn setup() -> Result<Self, Fault>;

    /// Creates a client without stored sessions.
    fn new_client(&self) -> Result<Self::Client, Fault>;

    /// Performs a handshake; returns the time that each side spent.
    fn time_handshake(&self, client: &Self::Client) -> Result<HandshakeCost, Fault>;
}

pub(super) fn ticks_since(began: u64) -> u64 {
    clock::ticks().saturating_sub(began)
}

/// Client and server of this project's TLS, which exchange their bytes in memory.
pub(super) struct HandoverTls {
    identity: Identity,
    server: TlsServerConfig,
}

impl HandshakeSides for HandoverTls {
    type Client = TlsClientConfig;

    fn setup() -> Result<Self, Fault> {
        let identity = generate_identity()?;
        let server =
            TlsServerConfig::new(&identity, ServerOptions::default()).map_err(Fault::from_error)?;
        Ok(Self { identity, server })
    }

    fn new_client(&self) -> Result<TlsClientConfig, Fault> {
        let roots = RootCertificates::from_identity(&self.identity).map_err(Fault::from_error)?;
        TlsClientConfig::new(ServerVerification::Roots(roots), ClientOptions::default())
            .map_err(Fault::from_error)
    }

    fn time_handshake(&self, client: &TlsClientConfig) -> Result<HandshakeCost, Fault> {
        let began = clock::ticks();
        let mut near = TlsState::new_client(client, "localhost", 0).map_err(Fault::from_error)?;
        let mut client_ticks = ticks_since(began);
        let began = clock::ticks();
        let mut far = TlsState::new_server(&self.server, 0).map_err(Fault::from_error)?;
        let mut server_ticks = ticks_since(began);
        let (mut plain, mut to_far, mut to_near) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let began = clock::ticks();
            near.open_records(&mut to_near, &mut plain, &mut to_far).map_err(Fault::from_error)?;
            client_ticks += ticks_since(began);
            to_near.clear();
            if to_far.is_empty() {
                break;
            }
            let began = clock::ticks();
            far.open_records(&mut to_far, &mut plain, &mut to_near).map_err(Fault::from_error)?;
            server_ticks += ticks_since(began);
            to_far.clear();
        }
        match (near.is_handshake_complete(), far.is_handshake_complete(), far.is_resumed()) {
            (true, true, Some(is_resumed)) => {
                Ok(HandshakeCost { client_ticks, server_ticks, is_resumed })
            }
            _ => {
                Err(Fault::new("the handshake is not complete, but no bytes are left to exchange"))
            }
        }
    }
}

/// Workload: full and resumed handshakes, in turn.
pub(super) struct Handshake<S: HandshakeSides> {
    sides: S,
    client: S::Client,
}

impl<S: HandshakeSides> Handshake<S> {
    /// Performs a handshake; fails if `should_resume` and it is full, or the reverse.
    fn checked_handshake(
        &self,
        client: &S::Client,
        should_resume: bool,
    ) -> Result<HandshakeCost, Fault> {
        let cost = self.sides.time_handshake(client)?;
        match cost.is_resumed == should_resume {
            true => Ok(cost),
            false if should_resume => {
                Err(Fault::new("the handshake did not resume the stored session"))
            }
            false => Err(Fault::new("the handshake resumed a session, but none was stored")),
        }
    }

    /// Performs a full handshake and then a resumed one; returns the costs of both.
    fn full_and_resumed(&self) -> Result<(HandshakeCost, HandshakeCost), Fault> {
        let full = self.checked_handshake(&self.sides.new_client()?, false)?;
        Ok((full, self.checked_handshake(&self.client, true)?))
    }
}

impl<S: HandshakeSides> Workload for Handshake<S> {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "net/handshake",
        "TLS 1.3 handshake in memory, each side timed alone",
    )
    .floor("floor/signature")
    .parts(&[
        Part::new("full", "server's share of a full handshake with certificates"),
        Part::new("resumed", "server's share of a handshake that resumes a session")
            .floor("floor/agreement"),
        Part::new(
            "client",
            "client's share of a full handshake, including the check of the server's certificate",
        ),
    ]);

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        let sides = S::setup()?;
        let client = sides.new_client()?;
        let prepared = Self { sides, client };
        // From now on the client has a session.
        prepared.checked_handshake(&prepared.client, false)?;
        Ok(prepared)
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.full_and_resumed().map(drop)
    }

    fn sample(&mut self, out: &mut Samples) {
        while out.is_running() {
            let (full, resumed) = self.full_and_resumed().unwrap_or_else(|fault| panic!("{fault}"));
            out.record_ticks(FULL_PART, full.server_ticks);
            out.record_ticks(CLIENT_PART, full.client_ticks);
            out.record_ticks(RESUMED_PART, resumed.server_ticks);
        }
    }
}
