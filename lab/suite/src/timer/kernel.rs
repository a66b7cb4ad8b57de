//! Compared implementation: the kernel's timers, one descriptor for each, all in one epoll set.

use super::{Timers, check_expiry};
use handover_harness::Fault;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};

const NS_PER_S: u64 = 1_000_000_000;
/// Time in seconds from the setup to the earliest deadline. It keeps timers from expiring by
/// themselves during a round.
const AHEAD_S: u64 = 3600;

/// Timer with a timerfd of its own.
struct Timer {
    fd: OwnedFd,
    key: u32,
    /// Deadline of the timer in ns; `None` if the timer is not running.
    deadline_ns: Option<u64>,
}

/// Compared implementation: one timerfd for each timer. As the kernel's time cannot be set,
/// `prepare()` arms the due timers with a deadline in the past; their interrupts are not part of
/// any figure.
pub(super) struct TimerFds {
    epoll_set: OwnedFd,
    timers: Vec<Timer>,
    /// Indices of free entries in `timers`.
    vacant: Vec<u32>,
    /// Time of the kernel's clock when the timers' own time was 0, in ns.
    began_ns: u64,
    events: Vec<epoll::Event>,
}

/// Arms a timerfd to expire at `at_ns` of the kernel's monotonic clock; 0 disarms it.
#[inline]
fn arm(fd: &OwnedFd, at_ns: u64) -> Result<(), Errno> {
    let value = Timespec {
        tv_sec: (at_ns / NS_PER_S).cast_signed(),
        tv_nsec: (at_ns % NS_PER_S).cast_signed(),
    };
    let it_interval = Timespec::default();
    let once = Itimerspec { it_interval, it_value: value };
    timerfd_settime(fd, TimerfdTimerFlags::ABSTIME, &once).map(drop)
}

impl TimerFds {
    /// Stores an event for each expired timer in `events`; returns their number.
    fn poll(&mut self) -> Result<usize, Errno> {
        self.events.clear();
        epoll::wait(&self.epoll_set, spare_capacity(&mut self.events), Some(&Timespec::default()))?;
        Ok(self.events.len())
    }
}

impl Timers for TimerFds {
    type Id = u32;

    fn new(timers_max: u32) -> Result<Self, Fault> {
        let epoll_set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = |index: u32| {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            epoll::add(
                &epoll_set,
                &fd,
                epoll::EventData::new_u64(index.into()),
                epoll::EventFlags::IN,
            )?;
            Ok(Timer { fd, key: 0, deadline_ns: None })
        };
        // One more timer, for the pair.
        let timers: Result<Vec<Timer>, Errno> = (0..=timers_max).map(timer).collect();
        let timers = timers.map_err(|errno| {
            let why = "does `ulimit -n` allow as many descriptors? If not, set fewer timers";
            Fault::new(format!(
                "cannot create {count} timerfds: {errno}; {why}",
                count = timers_max + 1
            ))
        })?;
        let now = clock_gettime(ClockId::Monotonic);
        Ok(Self {
            epoll_set,
            timers,
            vacant: (0..=timers_max).rev().collect(),
            began_ns: (now.tv_sec.cast_unsigned() + AHEAD_S) * NS_PER_S,
            events: Vec::with_capacity(timers_max as usize + 1),
        })
    }

    #[inline(always)]
    fn start(&mut self, deadline_ns: u64, key: u32) -> u32 {
        let index = self.vacant.pop().expect("more than timers_max timers were started");
        let timer = &mut self.timers[index as usize];
        (timer.key, timer.deadline_ns) = (key, Some(deadline_ns));
        arm(&timer.fd, self.began_ns + deadline_ns).expect("cannot set a timerfd");
        index
    }

    #[inline(always)]
    fn cancel(&mut self, index: u32) -> bool {
        let timer = &mut self.timers[index as usize];
        if timer.deadline_ns.take().is_none() {
            return false;
        }
        self.vacant.push(index);
        arm(&timer.fd, 0).is_ok()
    }

    fn prepare(&mut self, now_ns: u64) -> Result<(), Fault> {
        let mut due_count = 0;
        for timer in &self.timers {
            if timer.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns) {
                arm(&timer.fd, 1)?;
                due_count += 1;
            }
        }
        // They expire by an interrupt, after the system call.
        while self.poll()? < due_count {}
        Ok(())
    }

    #[inline]
    fn expire(&mut self, _: u64, keys: &mut Vec<u32>) {
        // A signal cannot interrupt a wait that does not sleep.
        let due_count = self.poll().unwrap_or(0);
        for at in 0..due_count {
            let data = self.events[at].data;
            let index = data.u64();
            let timer = &mut self.timers[index as usize];
            let mut expirations_count = [0; 8];
            if rustix::io::read(&timer.fd, &mut expirations_count).is_ok() {
                timer.deadline_ns = None;
                keys.push(timer.key);
                self.vacant.push(index as u32);
            }
        }
    }

    fn check_expiry() -> Result<(), Fault> {
        check_expiry::<Self>(300) // within the usual limit of 1024 descriptors
    }
}
