//! The archive that `install.sh` installs: `libhandover.a` in cargo's folder of examples.

pub use handover::*;
