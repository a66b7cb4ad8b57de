//! TLS over a nonblocking socket, with rustls.

use super::socket::{self, ReadResult};
use crate::{CloseReason, EndpointError, TlsFiles};
use handover_base::file;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection,
};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process;
use std::sync::Arc;

/// TLS configurations of an endpoint, for accepting and for connecting.
#[derive(Debug, Default)]
pub(crate) struct TlsSetup {
    pub(crate) server: Option<Arc<ServerConfig>>,
    pub(crate) client: Option<Arc<ClientConfig>>,
}

impl TlsSetup {
    /// Creates configurations of mutual TLS 1.3 from these files. Sessions are not resumed:
    /// certificates are checked for each connection.
    pub(crate) fn from_files(files: &TlsFiles) -> Result<Self, EndpointError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = load_certificates(&files.certificates)?;
        let key_pem = read_file(&files.private_key, "private key")?;
        let key = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|error| load_error(&files.private_key, "private key", error))?;
        let of_roots = |error: String| EndpointError::new_security(&files.roots, error);
        let mut roots = RootCertStore::empty();
        for root in load_certificates(&files.roots)? {
            roots.add(root).map_err(|error| of_roots(error.to_string()))?;
        }
        let roots = Arc::new(roots);
        let of_chain = |error: rustls::Error| {
            EndpointError::new_security(&files.certificates, error.to_string())
        };
        let versions = [&rustls::version::TLS13];

        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| of_roots(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(of_chain)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(of_chain)?;
        server.send_tls13_tickets = 0;

        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(of_chain)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(of_chain)?;
        client.resumption = rustls::client::Resumption::disabled();
        Ok(Self { server: Some(Arc::new(server)), client: Some(Arc::new(client)) })
    }

    pub(crate) fn new_server_session(&self, fd: OwnedFd) -> Result<TlsSession, CloseReason> {
        // check_listen_address() has made sure that a listening endpoint has one.
        let config = self.server.clone().ok_or(CloseReason::ClosedLocally)?;
        let connection = ServerConnection::new(config).map_err(tls_error)?.into();
        Ok(TlsSession::new(fd, connection))
    }

    /// Starts TLS as the client of that `HOST:PORT`.
    pub(crate) fn new_client_session(
        &self,
        fd: OwnedFd,
        host_port: &str,
    ) -> Result<TlsSession, String> {
        let none = "no certificates: set `access.tls` in the configuration";
        let config = self.client.clone().ok_or(none)?;
        let host = host_port.rsplit_once(':').map_or(host_port, |(host, _)| host);
        // Removes the brackets of an IPv6 address.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let connection = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        let connection = connection.into();
        Ok(TlsSession::new(fd, connection))
    }
}

fn load_certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, EndpointError> {
    let pem = read_file(path, "certificates")?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| load_error(path, "certificates", error))?;
    match found.is_empty() {
        true => {
            Err(EndpointError::new_security(path, "the file contains no certificate in PEM format"))
        }
        false => Ok(found),
    }
}

fn read_file(path: &str, what: &str) -> Result<Vec<u8>, EndpointError> {
    file::read(path.as_ref(), file::LENGTH_MAX_BYTES).map_err(|error| load_error(path, what, error))
}

fn load_error(path: &str, what: &str, error: impl fmt::Display) -> EndpointError {
    EndpointError::new_security(path, format!("cannot load the {what}: {error}"))
}

fn tls_error(error: rustls::Error) -> CloseReason {
    CloseReason::Tls(error.to_string().into())
}

/// Length, in bytes, of a TLS record's header. Its last two bytes are the length of the rest (RFC
/// 8446, section 5.1).
const RECORD_HEADER_BYTES: usize = 5;

/// Maximum of [`TlsSession::credit_bytes`]. A record has at most 16 KiB, and a handshake message at
/// most 64 KiB.
const CREDIT_BYTES_MAX: usize = 256 << 10;

/// Number of received bytes that a byte of content allows. A frame has at least 24 bytes of
/// content, and TLS adds 22 bytes to each record.
const CREDIT_PER_CONTENT_BYTE: usize = 16;

/// Parser that finds the record boundaries in the incoming stream. rustls reports only complete
/// records.
#[derive(Debug, Default)]
struct RecordBoundaryParser {
    header: [u8; RECORD_HEADER_BYTES],
    /// Number of header bytes that have arrived; 0 between two records.
    header_bytes: usize,
    /// Number of bytes after the header that are still to arrive.
    rest_bytes: usize,
}

impl RecordBoundaryParser {
    /// Searches further received bytes for record boundaries.
    fn parse(&mut self, mut bytes: &[u8]) {
        while let [first, behind @ ..] = bytes {
            if self.header_bytes < RECORD_HEADER_BYTES {
                self.header[self.header_bytes] = *first;
                self.header_bytes += 1;
                let [.., high, low] = self.header;
                self.rest_bytes = u16::from_be_bytes([high, low]).into();
                bytes = behind;
            } else {
                let count = self.rest_bytes.min(bytes.len());
                self.rest_bytes -= count;
                bytes = &bytes[count..];
            }
            if self.header_bytes == RECORD_HEADER_BYTES && self.rest_bytes == 0 {
                *self = Self::default();
            }
        }
    }

    /// Returns `true` if a part of a record has arrived.
    fn is_within_record(&self) -> bool {
        self.header_bytes > 0
    }
}

/// TLS session of a connection, as client or server. The handshake proceeds during receive().
pub(crate) struct TlsSession {
    fd: OwnedFd,
    connection: Connection,
    incoming: RecordBoundaryParser,
    /// Number of bytes that the peer may still send before the socket is found empty.
    credit_bytes: usize,
    /// Process that has created the session.
    process: u32,
}

handover_base::debug_struct!(TlsSession as it { fd: it.fd });

impl TlsSession {
    fn new(fd: OwnedFd, connection: Connection) -> Self {
        let incoming = RecordBoundaryParser::default();
        let process = process::id();
        Self { fd, connection, incoming, credit_bytes: CREDIT_BYTES_MAX, process }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Encrypts and sends bytes; returns the number accepted. rustls buffers at most 64 KiB,
    /// encrypted or until the handshake is done.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, CloseReason> {
        let mut taken = 0;
        loop {
            self.flush()?;
            match self.connection.writer().write(&bytes[taken..]) {
                Ok(0) | Err(_) => return Ok(taken),
                Ok(count) => taken += count,
            }
        }
    }

    /// Reads the socket until there are decrypted bytes, or it has no more. Fails if the peer sends
    /// records with hardly any content without a pause, which would keep others waiting.
    pub(crate) fn receive(&mut self, into: &mut [u8]) -> Result<ReadResult, CloseReason> {
        loop {
            match self.connection.reader().read(into) {
                Ok(0) => return Ok(ReadResult::End),
                Ok(count) => {
                    let credit_bytes = self.credit_bytes + count * CREDIT_PER_CONTENT_BYTE;
                    self.credit_bytes = credit_bytes.min(CREDIT_BYTES_MAX);
                    // More bytes may be available, decrypted or encrypted.
                    return Ok(ReadResult::Bytes { count, drained: false });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => {
                    let cut = "the connection ended without close_notify";
                    return Err(CloseReason::Tls(cut.into()));
                }
            }
            let (fd, records) = (self.fd.as_fd(), &mut self.incoming);
            // 0 bytes are the end of the stream, which the next read reports.
            let count = match self.connection.read_tls(&mut RecordReader { fd, records }) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.credit_bytes = CREDIT_BYTES_MAX;
                    return Ok(ReadResult::Nothing);
                }
                Err(error) => return Err(CloseReason::from_system_call("recv")(error)),
            };
            self.credit_bytes = self.credit_bytes.checked_sub(count).ok_or_else(|| {
                let ratio = format!(
                    "records without a pause, of more than {CREDIT_PER_CONTENT_BYTE} bytes for each \
                     byte of content"
                );
                CloseReason::Tls(ratio.into())
            })?;
            let opened = self.connection.process_new_packets();
            // Sends the next handshake message, or the alert with the reason. An error is ignored:
            // if the peer has closed the connection, the bytes it sent before are more informative,
            // and are read next.
            let _ = self.flush();
            opened.map_err(tls_error)?;
        }
    }

    pub(crate) fn flush(&mut self) -> Result<bool, CloseReason> {
        let mut went = false;
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut RecordWriter(self.fd.as_fd())) {
                Ok(0) => break,
                Ok(_) => went = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(CloseReason::from_system_call("send")(error)),
            }
        }
        Ok(went)
    }

    /// Sends close_notify, so that the peer can distinguish an orderly end from a truncated stream.
    pub(crate) fn end(&mut self) {
        self.connection.send_close_notify();
        // An error means that there is no space, or that the peer has closed the connection.
        let _ = self.flush();
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    pub(crate) fn is_within_record(&self) -> bool {
        self.incoming.is_within_record()
    }
}

impl Drop for TlsSession {
    fn drop(&mut self) {
        // A forked child would use the key and the number of the parent's next record.
        if process::id() == self.process {
            self.end();
        }
    }
}

/// Socket from which rustls reads.
struct RecordReader<'a> {
    fd: BorrowedFd<'a>,
    records: &'a mut RecordBoundaryParser,
}

impl Read for RecordReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = socket::receive(self.fd, into)?;
        self.records.parse(&into[..count]);
        Ok(count)
    }
}

/// Socket to which rustls writes.
struct RecordWriter<'a>(BorrowedFd<'a>);

impl Write for RecordWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match socket::send_vectored(self.0, parts)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{self, AddressFamily, SendFlags, SocketFlags, SocketType};

    /// Returns the sessions of a client and of a server, connected by a pair of sockets of this
    /// type.
    fn new_pair(kind: SocketType) -> (TlsSession, TlsSession) {
        let no_flags = SocketFlags::empty();
        let (client_fd, server_fd) =
            net::socketpair(AddressFamily::UNIX, kind, no_flags, None).unwrap();
        let signed = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        let certificate = signed.cert.der().clone();
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let (client, server) = (Some(Arc::new(client)), Some(Arc::new(server)));
        let setup = TlsSetup { server, client };
        let client = setup.new_client_session(client_fd, "localhost:1").unwrap();
        (client, setup.new_server_session(server_fd).unwrap())
    }

    #[test]
    fn peer_that_sends_little_content_without_a_pause_is_closed() {
        let (mut client, mut server) = new_pair(SocketType::STREAM);
        let into = &mut [0; 4096];
        while client.connection.is_handshaking() || server.connection.is_handshaking() {
            client.flush().unwrap();
            assert_eq!(server.receive(into), Ok(ReadResult::Nothing));
            assert_eq!(client.receive(into), Ok(ReadResult::Nothing));
        }
        // Each record of 23 bytes has 1 byte of content, and so takes 7 bytes of credit.
        let records_max = CREDIT_BYTES_MAX / 7 + 1;
        let mut received_bytes = 0;
        let why = loop {
            while !client.has_unsent() {
                assert_eq!(client.send(&[0]), Ok(1));
                client.flush().unwrap();
            }
            client.flush().unwrap();
            match server.receive(into) {
                Ok(ReadResult::Bytes { count, .. }) => received_bytes += count,
                other => break other,
            }
            assert!(received_bytes <= records_max, "the peer is still connected");
        };
        let ratio = "records without a pause, of more than 16 bytes for each byte of content";
        assert_eq!(why, Err(CloseReason::Tls(ratio.into())));
    }

    #[test]
    fn record_in_many_short_segments_is_awaited() {
        // Each read takes one packet.
        let (mut client, server) = new_pair(SocketType::SEQPACKET);
        let send = |bytes: &[u8]| net::send(server.fd(), bytes, SendFlags::empty()).unwrap();
        // The start of a handshake record of 16 KiB.
        assert_eq!(send(&[22, 3, 3, 0x40, 0]), 5);
        (0..100).for_each(|_| assert_eq!(send(&[0]), 1));
        assert_eq!(client.receive(&mut [0; 16]), Ok(ReadResult::Nothing));
    }

    #[test]
    fn record_boundaries_are_found_in_any_split_of_the_stream() {
        // Records of 3, 0 and 300 bytes.
        let lengths = [3u16, 0, 300];
        let stream: Vec<u8> = lengths
            .iter()
            .flat_map(|length| {
                let [high, low] = length.to_be_bytes();
                let mut record = vec![23, 3, 3, high, low];
                record.resize(RECORD_HEADER_BYTES + usize::from(*length), 0xff);
                record
            })
            .collect();
        let ends = [0, 8, 13, 318];
        assert_eq!(stream.len(), 318);
        for first in 0..=stream.len() {
            for second in [first, (first + 4).min(stream.len()), stream.len()] {
                let mut records = RecordBoundaryParser::default();
                for (part, end) in [(0..first, first), (first..second, second)] {
                    records.parse(&stream[part]);
                    assert_eq!(
                        records.is_within_record(),
                        !ends.contains(&end),
                        "{first} {second}"
                    );
                }
            }
        }
    }
}
