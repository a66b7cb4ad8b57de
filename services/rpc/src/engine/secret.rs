//! Shared secret of both ends of a connection, and proofs of its knowledge.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Minimum length of a shared secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;

/// Length of the random number that each end contributes to a handshake, in bytes.
pub const NONCE_BYTES: usize = 32;

/// Length of the proof that an end knows the shared secret, in bytes.
pub const PROOF_BYTES: usize = 32;

/// Value sent in place of a proof by an end that rejects the peer's proof. Finding a secret whose
/// HMAC-SHA-256 is this value is infeasible.
pub const NO_PROOF: [u8; PROOF_BYTES] = [0; PROOF_BYTES];

/// First bytes of each HMAC's input, which separate these proofs from other uses of the secret.
const DOMAIN: &[u8] = b"handover-rpc shared secret 1";

/// Role of an endpoint in a connection: it initiated or accepted the connection. The role is part
/// of a proof, so that a proof cannot be reflected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum HandshakeRole {
    /// The peer that initiated the connection; it sends its proof first.
    Connector = 1,
    /// The peer that accepted the connection.
    Acceptor = 2,
}

impl HandshakeRole {
    /// Returns the opposite role.
    #[must_use]
    pub fn opposite(self) -> Self {
        match self {
            HandshakeRole::Connector => HandshakeRole::Acceptor,
            HandshakeRole::Acceptor => HandshakeRole::Connector,
        }
    }
}

/// Secret shared by the two endpoints of a connection.
///
/// A proof is HMAC-SHA-256 over the role and the opening bytes of both ends, which contain a fresh
/// random number of each: recorded proofs and those of other connections are not accepted.
///
/// ```
/// use handover_rpc::engine::{HandshakeRole, Secret};
/// let secret = Secret::new(b"sixteen bytes or more").expect("create a secret");
/// let proof = secret.compute_proof(HandshakeRole::Connector, b"its opening", b"ours");
/// assert!(secret.is_valid_proof(&proof, HandshakeRole::Connector, b"its opening", b"ours"));
/// assert!(!secret.is_valid_proof(&proof, HandshakeRole::Acceptor, b"its opening", b"ours"));
/// ```
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// Creates a secret; returns `None` if there are fewer than [`SECRET_BYTES_MIN`] bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < SECRET_BYTES_MIN {
            return None;
        }
        // HMAC takes keys of every length.
        Hmac::new_from_slice(bytes).ok().map(Self)
    }

    fn hmac_over(&self, role: HandshakeRole, connector: &[u8], acceptor: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(DOMAIN);
        mac.update(&[role as u8]);
        mac.update(connector);
        mac.update(acceptor);
        mac
    }

    /// Returns the proof of the end with role `role`. It is computed over the opening bytes of the
    /// connector and of the acceptor. Each opening has a fixed length.
    #[must_use]
    pub fn compute_proof(
        &self,
        role: HandshakeRole,
        connector: &[u8],
        acceptor: &[u8],
    ) -> [u8; PROOF_BYTES] {
        self.hmac_over(role, connector, acceptor).finalize().into_bytes().into()
    }

    /// Returns `true` if `proof` is the proof of the end with that role. Takes constant time.
    #[must_use]
    pub fn is_valid_proof(
        &self,
        proof: &[u8; PROOF_BYTES],
        role: HandshakeRole,
        connector: &[u8],
        acceptor: &[u8],
    ) -> bool {
        self.hmac_over(role, connector, acceptor).verify(proof.into()).is_ok()
    }
}

// Omits the secret.
handover_base::debug_struct!(Secret);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_equals_the_hmac_sha_256_of_rfc_4231() {
        // The RFC's second test case, whose key is shorter than this library takes.
        let mut mac: Hmac<Sha256> = Hmac::new_from_slice(b"Jefe").expect("any length");
        mac.update(b"what do ya want for nothing?");
        let wanted = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let hex: String =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, wanted);
    }

    #[test]
    fn proof_depends_on_secret_role_and_both_openings() {
        let secret = Secret::new(&[7; 16]).expect("create a secret");
        let proof = secret.compute_proof(HandshakeRole::Connector, b"one", b"two");
        assert!(secret.is_valid_proof(&proof, HandshakeRole::Connector, b"one", b"two"));
        let other = Secret::new(&[8; 16]).expect("create a secret");
        assert!(!other.is_valid_proof(&proof, HandshakeRole::Connector, b"one", b"two"));
        assert!(!secret.is_valid_proof(&proof, HandshakeRole::Acceptor, b"one", b"two"));
        assert!(!secret.is_valid_proof(&proof, HandshakeRole::Connector, b"two", b"two"));
        assert!(!secret.is_valid_proof(&proof, HandshakeRole::Connector, b"one", b"one"));
        assert!(!secret.is_valid_proof(&NO_PROOF, HandshakeRole::Connector, b"one", b"two"));
        assert!(Secret::new(&[7; 15]).is_none());
        assert_eq!(format!("{secret:?}"), "Secret { .. }");
    }
}
