//! Two sides agree: on the protocol, on lengths, and on the memory that they share.
//!
//! Who connects says so first, and with it, for shared memory, passes the segment; who accepts looks at all
//! of it, and answers.

use super::link::AnyLink;
use super::listen::is_for_one_user;
use super::sm::Sm;
use super::socket;
use super::stream::Stream;
use crate::config::{MESSAGE_BYTES_LEAST, SHARED_BYTES_LIMIT, SLOTS_LIMIT};
use crate::engine::{HELLO_BYTES, Hello};
use crate::raw::{Segment, SegmentError};
use crate::{Address, Config, EndpointError, FrameError, Gone, Transport};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// A connection that is not agreed upon yet.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) fd: OwnedFd,
    address: Address,
    /// What this side, which has connected, shares.
    segment: Option<Segment>,
    connected: bool,
    came: [u8; HELLO_BYTES],
    came_bytes: usize,
    came_fds: Vec<OwnedFd>,
    pub(crate) deadline_ns: u64,
}

/// What was agreed upon.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) link: AnyLink,
    pub(crate) message_bytes_max: u32,
}

/// What this side says.
fn hello(config: &Config, is_sm: bool) -> Hello {
    Hello {
        message_bytes_max: config.message_bytes_max,
        slots_count: if is_sm { config.slots_count } else { 0 },
        shared_bytes: if is_sm { config.shared_bytes } else { 0 },
        spins: config.spin_forever,
    }
}

impl Greeting {
    /// Somebody has knocked at that address.
    pub(crate) fn accepted(fd: OwnedFd, address: Address, deadline_ns: u64) -> Self {
        Self {
            fd,
            address,
            segment: None,
            connected: false,
            came: [0; HELLO_BYTES],
            came_bytes: 0,
            came_fds: Vec::new(),
            deadline_ns,
        }
    }

    /// This side has connected to that address, and says so.
    pub(crate) fn connected(
        fd: OwnedFd,
        address: Address,
        config: &Config,
        deadline_ns: u64,
    ) -> Result<Self, EndpointError> {
        let place = address.to_string();
        let refused = |call| {
            let place = place.clone();
            move |errno| EndpointError::Refused { call, place, errno }
        };
        if is_for_one_user(&address) {
            let (_, uid) = socket::whose(fd.as_fd()).map_err(refused("getsockopt"))?;
            if uid != rustix::process::geteuid().as_raw() {
                return Err(EndpointError::Stranger { place, uid });
            }
        }
        let is_sm = address.transport() == Transport::Sm;
        let hello = hello(config, is_sm).encode();
        let mut greeting = Self::accepted(fd, address, deadline_ns);
        greeting.connected = true;
        let fd = greeting.fd.as_fd();
        let sent = if is_sm {
            let made = Segment::create(config.slots_count, config.shared_bytes);
            let (segment, file) = made.map_err(|why| match why {
                SegmentError::Refused(call, errno) => refused(call)(errno),
                SegmentError::NotSealed => refused("fcntl")(Errno::PERM),
            })?;
            greeting.segment = Some(segment);
            socket::send_fds(fd, &hello, &[file.as_fd()])
        } else {
            socket::send(fd, &hello)
        };
        // A fresh connection has room for so few bytes.
        match sent {
            Ok(HELLO_BYTES) => Ok(greeting),
            Ok(_) => Err(refused("sendmsg")(Errno::NOBUFS)),
            Err(errno) => Err(refused("sendmsg")(errno)),
        }
    }

    /// Takes what has come. False: there is more to come.
    pub(crate) fn advance(&mut self) -> Result<bool, Gone> {
        while self.came_bytes < HELLO_BYTES {
            // No more than the greeting: what follows is the link's.
            let into = &mut self.came[self.came_bytes..];
            match socket::receive_fds(self.fd.as_fd(), into, &mut self.came_fds) {
                Ok(0) => return Err(Gone::HungUp),
                Ok(count) => self.came_bytes += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(Gone::of("recvmsg")(errno)),
            }
        }
        Ok(true)
    }

    /// Looks at what has come, whole by now, and answers.
    pub(crate) fn agree(mut self, config: &Config) -> Result<Agreed, Gone> {
        let its = Hello::decode(&self.came).inspect_err(|why| {
            if matches!(why, FrameError::Version { .. }) && !self.connected {
                // So that it can say why; refused where it is gone already.
                let _ = self.answer(&hello(config, false));
            }
        })?;
        if its.message_bytes_max < MESSAGE_BYTES_LEAST {
            return Err(FrameError::Reserved.into());
        }
        let message_bytes_max = config.message_bytes_max.min(its.message_bytes_max);
        let link = match self.address.transport() {
            Transport::Sm => {
                let segment = self.share(&its, message_bytes_max, config)?;
                let own = usize::from(!self.connected);
                AnyLink::Sm(Sm::new(segment, own, its.spins, message_bytes_max, self.fd))
            }
            Transport::Tcp | Transport::Uds => {
                if !self.connected {
                    self.check_user()?;
                    self.answer(&hello(config, false))?;
                }
                AnyLink::Other(Box::new(Stream::new(self.fd, message_bytes_max)))
            }
        };
        Ok(Agreed { link, message_bytes_max })
    }

    fn share(
        &mut self,
        its: &Hello,
        message_bytes_max: u32,
        config: &Config,
    ) -> Result<Segment, Gone> {
        if let Some(segment) = self.segment.take() {
            return Ok(segment);
        }
        self.check_user()?;
        let (slots_count, shared_bytes) = (its.slots_count, its.shared_bytes);
        let fits = slots_count.is_power_of_two()
            && (2..=SLOTS_LIMIT).contains(&slots_count)
            && shared_bytes.is_power_of_two()
            && (2 * message_bytes_max..=SHARED_BYTES_LIMIT).contains(&shared_bytes);
        let file = self.came_fds.pop().filter(|_| fits).ok_or(FrameError::Reserved)?;
        let segment = match Segment::map(&file, slots_count, shared_bytes) {
            Ok(segment) => segment,
            Err(SegmentError::Refused(call, errno)) => return Err(Gone::Broken { call, errno }),
            Err(SegmentError::NotSealed) => return Err(FrameError::Reserved.into()),
        };
        self.answer(&Hello { slots_count, shared_bytes, ..hello(config, true) })?;
        Ok(segment)
    }

    /// Whether whoever is there may be: where an address is for one user, only that one.
    pub(crate) fn check_user(&self) -> Result<(), Gone> {
        if !is_for_one_user(&self.address) {
            return Ok(());
        }
        let (_, uid) = socket::whose(self.fd.as_fd()).map_err(Gone::of("getsockopt"))?;
        let same = uid == rustix::process::geteuid().as_raw();
        if same { Ok(()) } else { Err(Gone::Broken { call: "accept", errno: Errno::PERM }) }
    }

    fn answer(&self, hello: &Hello) -> Result<(), Gone> {
        match socket::send(self.fd.as_fd(), &hello.encode()) {
            Ok(HELLO_BYTES) => Ok(()),
            Ok(_) => Err(Gone::of("send")(Errno::NOBUFS)),
            Err(errno) => Err(Gone::of("send")(errno)),
        }
    }

    /// Whether this side has connected.
    pub(crate) fn is_ours(&self) -> bool {
        self.connected
    }
}
