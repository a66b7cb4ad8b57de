//! Computations that every implementation of a handshake needs: the two operations of its
//! cryptography, as TLS 1.3 with the usual certificate performs them.

use handover_harness::{Fault, Samples, Setup, Workload};
use handover_net::tls::Identity;
use handover_record::Spec;
use rustls::SignatureScheme;
use rustls::crypto::aws_lc_rs::{kx_group::X25519, sign::any_supported_type};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use rustls::sign::Signer;
use std::hint::black_box;

/// Length of the signed text in a handshake of TLS 1.3. The text is 64 spaces, a label, a zero, and
/// a hash of 32 bytes.
const SIGNED_BYTES: usize = 64 + 33 + 1 + 32;

/// Workload: the signature by which a server proves that it has its certificate's private key.
pub(super) struct Signing {
    signer: Box<dyn Signer>,
    text: [u8; SIGNED_BYTES],
}

impl Workload for Signing {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "floor/signature",
        "ECDSA signature over P-256, as the server computes it in each full TLS handshake",
    );

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        let identity = Identity::generate(&["localhost"]).map_err(Fault::from_error)?;
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem().as_bytes())
            .map_err(Fault::from_error)?;
        let key = any_supported_type(&key).map_err(Fault::from_error)?;
        let signer = key.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]);
        let signer = signer
            .ok_or_else(|| Fault::new("the key does not sign by ECDSA over P-256 with SHA-256"))?;
        Ok(Self { signer, text: [b' '; SIGNED_BYTES] })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        self.signer.sign(&self.text).map(drop).map_err(Fault::from_error)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for _ in 0..n {
                // Cannot fail: self_test() has signed once.
                let _ = black_box(self.signer.sign(black_box(&self.text)));
            }
        });
    }
}

/// Workload: a new X25519 key pair, and the secret that it shares with another participant's public
/// key.
pub(super) struct KeyAgreement {
    peer_public_key: Vec<u8>,
}

impl Workload for KeyAgreement {
    type Args = ();
    const SPEC: Spec = Spec::new(
        "floor/agreement",
        "X25519 key generation and key agreement, as in each TLS handshake",
    );

    fn setup((): &(), _: &mut Setup) -> Result<Self, Fault> {
        Ok(Self { peer_public_key: X25519.start().map_err(Fault::from_error)?.pub_key().to_vec() })
    }

    fn self_test(&mut self) -> Result<(), Fault> {
        X25519.start_and_complete(&self.peer_public_key).map(drop).map_err(Fault::from_error)
    }

    fn sample(&mut self, out: &mut Samples) {
        out.time_batches(|n| {
            for _ in 0..n {
                // Cannot fail: self_test() has done this once.
                let _ = black_box(X25519.start_and_complete(black_box(&self.peer_public_key)));
            }
        });
    }
}
