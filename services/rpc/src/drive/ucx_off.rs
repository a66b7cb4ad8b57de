//! Stubs used when the feature `ucx` is off.

use super::link::AnyLink;
use super::poll::Poll;
use crate::raw::Region;
use crate::{Address, CloseReason, EndpointError};
use std::os::fd::OwnedFd;

const NO_UCX_FEATURE: &str = "this program was built without the feature `ucx` of handover-rpc";

/// Stub of the UCX worker, which refuses to start.
#[derive(Debug, Default)]
pub(crate) struct UcxDriver;

impl UcxDriver {
    pub(crate) fn start(&mut self, address: &Address, _poll: &Poll) -> Result<(), EndpointError> {
        Err(EndpointError::Ucx { address: address.clone(), why: NO_UCX_FEATURE.into() })
    }

    pub(crate) fn progress(&mut self) -> bool {
        false
    }

    pub(crate) fn has_completed_operations(&self) -> bool {
        false
    }

    pub(crate) fn take_completed(&mut self) -> Vec<(u64, bool)> {
        Vec::new()
    }

    pub(crate) fn arm(&mut self) -> Option<u64> {
        None
    }

    pub(crate) fn allocate(&self, _bytes: usize) -> Option<Region> {
        None
    }

    pub(crate) fn open_link(
        &self,
        _socket: OwnedFd,
        _body_bytes_max: u32,
    ) -> Result<AnyLink, CloseReason> {
        Err(CloseReason::Ucx(NO_UCX_FEATURE.into()))
    }
}
