//! Packet schedulers.

use super::handle::{UserPointer, copy_struct, guard, put, require, text};
use crate::status::{Fault, handover_status};
use ::handover_sched::engine::Tenants;
use ::handover_sched::{
    Algorithm, AnyScheduler, Config, DropPolicy, EnqueueOutcome, FlowError, FlowSpec, Packet,
    Refusal, Scheduler, UnknownAlgorithm,
};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use handover_status::*;

/// Scheduler of packets; opaque.
pub struct handover_sched {
    scheduler: Levels,
}

/// Scheduler of one or two levels.
enum Levels {
    /// Scheduler of flows.
    One(AnyScheduler<UserPointer>),
    /// Scheduler of tenants, and of the flows of each tenant.
    Two(Box<dyn Tenants<UserPointer> + Send>),
}

impl handover_sched {
    fn get(&self) -> &dyn Scheduler<UserPointer> {
        match &self.scheduler {
            Levels::One(scheduler) => &**scheduler,
            Levels::Two(tenants) => &**tenants,
        }
    }

    fn get_mut(&mut self) -> &mut dyn Scheduler<UserPointer> {
        match &mut self.scheduler {
            Levels::One(scheduler) => &mut **scheduler,
            Levels::Two(tenants) => &mut **tenants,
        }
    }

    /// Returns the scheduler of tenants; an error if the scheduler has only flows.
    fn tenants(&mut self) -> Result<&mut dyn Tenants<UserPointer>, Fault> {
        match &mut self.scheduler {
            Levels::One(_) => Err(HANDOVER_INVALID_ARGUMENT
                .because("scheduler: it has no tenants; use handover_sched_create_tenants")),
            Levels::Two(tenants) => Ok(&mut **tenants),
        }
    }
}

/// Function called with each queued packet of a flow that is removed.
pub type handover_sched_discard =
    Option<unsafe extern "C" fn(packet: *const handover_sched_packet, context: *mut c_void)>;

/// Properties of a flow. `handover_sched_flow_init` fills in the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_sched_flow {
    /// Size of this structure in bytes, set by `handover_sched_flow_init`. Another size is refused.
    pub struct_bytes: usize,
    /// Weight of the flow; with `prio` its priority (smaller is first), with `pacing` its rate in
    /// bit/s. Default 1.
    pub weight: u64,
    /// Maximum length of a packet of the flow in bytes. Default 65,535.
    pub length_bytes_max: u32,
    /// Maximum number of queued packets of the flow. Default 1,024.
    pub packets_max: u32,
    /// 1 to drop the oldest packet of a full flow, 0 to refuse the newest. Default 0.
    pub drops_oldest: u32,
}

/// Packet of a flow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_sched_packet {
    /// Number of the flow, from `handover_sched_add_flow`.
    pub flow: u32,
    /// Length in bytes. Flows share bytes, not packets, by their weights.
    pub length_bytes: u32,
    /// Pointer with which the program identifies the packet.
    pub token: *mut c_void,
}

impl From<Packet<UserPointer>> for handover_sched_packet {
    fn from(packet: Packet<UserPointer>) -> Self {
        let Packet { flow, length_bytes, token } = packet;
        Self { flow, length_bytes, token: token.get() }
    }
}

/// Counters of a scheduler: `enqueued == dequeued + dropped + queued` at every moment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct handover_sched_totals {
    /// Number of packets accepted.
    pub enqueued: u64,
    /// Number of packets dequeued.
    pub dequeued: u64,
    /// Number of accepted packets that were later dropped in favour of newer ones, or with their
    /// flow.
    pub dropped: u64,
    /// Number of packets refused.
    pub refused: u64,
}

/// Creates a scheduler without flows. `discipline` is one of `fifo`, `rr`, `rr1`, `prio`, `wf2q+`,
/// `qfq`, `qfq+` and `pacing`. The memory for `flows_max` flows and `packets_max` packets is
/// allocated here; the process is aborted if there is not enough.
///
/// Errors: `HANDOVER_NOT_FOUND` for an unknown discipline; `HANDOVER_INVALID_ARGUMENT` for a limit
/// outside its range. Threads: any; a scheduler may move between threads, and one at a time may use
/// it. Blocking: never. Ownership: the caller destroys the scheduler.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_sched_create(
    discipline: *const c_char,
    flows_max: u32,
    packets_max: u32,
    scheduler: Option<&mut MaybeUninit<Option<Box<handover_sched>>>>,
) -> handover_status {
    guard(|| {
        let place = require("scheduler", scheduler)?;
        // SAFETY: the header demands a string that ends with a zero byte.
        let algorithm = unsafe { parse_algorithm("discipline", discipline) }?;
        let config = Config::default().flows_max(flows_max).packets_max(packets_max);
        let built = algorithm.build(&config);
        let built = built.map_err(|error| HANDOVER_INVALID_ARGUMENT.because(error))?;
        place.write(Some(Box::new(handover_sched { scheduler: Levels::One(built) })));
        Ok(())
    })
}

/// Returns the algorithm with this name.
///
/// # Safety
/// As for [`text`].
unsafe fn parse_algorithm(argument: &str, name: *const c_char) -> Result<Algorithm, Fault> {
    // SAFETY: the caller guarantees what `text` demands.
    let name = unsafe { text(argument, name) }?;
    name.parse().map_err(|error: UnknownAlgorithm| HANDOVER_NOT_FOUND.because(error))
}

/// Creates a scheduler of two levels without tenants: `discipline` orders the tenants, and
/// `flows_discipline` the flows of each tenant. Both are names as for `handover_sched_create`, but
/// not `fifo`; `pacing` can order only the tenants.
///
/// Errors, threads, blocking and ownership: as `handover_sched_create`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_sched_create_tenants(
    discipline: *const c_char,
    flows_discipline: *const c_char,
    flows_max: u32,
    packets_max: u32,
    scheduler: Option<&mut MaybeUninit<Option<Box<handover_sched>>>>,
) -> handover_status {
    guard(|| {
        let place = require("scheduler", scheduler)?;
        // SAFETY: the header demands a string that ends with a zero byte.
        let tenants = unsafe { parse_algorithm("discipline", discipline) }?;
        // SAFETY: as above.
        let flows = unsafe { parse_algorithm("flows_discipline", flows_discipline) }?;
        let config = Config::default().flows_max(flows_max).packets_max(packets_max);
        let built = tenants.build_tenants(flows, &config);
        let built = built.map_err(|error| HANDOVER_INVALID_ARGUMENT.because(error))?;
        place.write(Some(Box::new(handover_sched { scheduler: Levels::Two(built) })));
        Ok(())
    })
}

/// Fills in the defaults of a flow.
///
/// Threads: any. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_sched_flow_init(
    flow: Option<&mut MaybeUninit<handover_sched_flow>>,
) -> handover_status {
    guard(|| {
        require("flow", flow)?.write(handover_sched_flow {
            struct_bytes: size_of::<handover_sched_flow>(),
            weight: 1,
            length_bytes_max: 65_535,
            packets_max: 1024,
            drops_oldest: 0,
        });
        Ok(())
    })
}

/// Adds a flow; its number, 0 for the first, goes to `number`.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a property outside the discipline's range;
/// `HANDOVER_FULL` for more than `flows_max` flows. Threads: one at a time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_sched_add_flow(
    scheduler: Option<&mut handover_sched>,
    flow: *const handover_sched_flow,
    number: Option<&mut MaybeUninit<u32>>,
) -> handover_status {
    guard(|| {
        let scheduler = require("scheduler", scheduler)?.get_mut();
        // SAFETY: the header demands a structure that begins with its size.
        let spec = flow_spec(&unsafe { copy_struct("flow", flow) }?);
        put(number, scheduler.add_flow(spec).map_err(flow_fault)?);
        Ok(())
    })
}

fn flow_spec(flow: &handover_sched_flow) -> FlowSpec {
    FlowSpec::default()
        .weight(flow.weight)
        .length_max_bytes(flow.length_bytes_max)
        .packets_max(flow.packets_max)
        .drop(if flow.drops_oldest != 0 { DropPolicy::Head } else { DropPolicy::Tail })
}

fn flow_fault(error: FlowError) -> Fault {
    match error {
        FlowError::Flows { .. } => HANDOVER_FULL.because(error),
        FlowError::Unknown { .. } | FlowError::Tenant { .. } => HANDOVER_NOT_FOUND.because(error),
        _ => HANDOVER_INVALID_ARGUMENT.because(error),
    }
}

/// Adds a tenant, whose packets have at most `length_bytes_max` bytes, with a weight among the
/// tenants. Its number, 0 for the first, goes to `number`.
///
/// Errors: `HANDOVER_INVALID_ARGUMENT` for a number outside the discipline's range, or a scheduler
/// without tenants; `HANDOVER_FULL` for more than `flows_max` tenants. Threads: one at a time.
/// Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_sched_add_tenant(
    scheduler: Option<&mut handover_sched>,
    weight: u64,
    length_bytes_max: u32,
    number: Option<&mut MaybeUninit<u32>>,
) -> handover_status {
    guard(|| {
        let tenants = require("scheduler", scheduler)?.tenants()?;
        put(number, tenants.add_tenant(weight, length_bytes_max).map_err(flow_fault)?);
        Ok(())
    })
}

/// Adds a flow like `handover_sched_add_flow`, to a tenant. (That function adds to the tenant that
/// was added last.)
///
/// Errors: `HANDOVER_NOT_FOUND` for an unknown tenant; `HANDOVER_INVALID_ARGUMENT` for a scheduler
/// without tenants; otherwise as `handover_sched_add_flow`. Threads: one at a time. Blocking:
/// never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_sched_add_flow_of(
    scheduler: Option<&mut handover_sched>,
    tenant: u32,
    flow: *const handover_sched_flow,
    number: Option<&mut MaybeUninit<u32>>,
) -> handover_status {
    guard(|| {
        let tenants = require("scheduler", scheduler)?.tenants()?;
        // SAFETY: the header demands a structure that begins with its size.
        let spec = flow_spec(&unsafe { copy_struct("flow", flow) }?);
        put(number, tenants.add_flow_of(tenant, spec).map_err(flow_fault)?);
        Ok(())
    })
}

/// Removes a flow, and calls `discard`, unless that is null, for each of its packets, oldest first.
/// A flow that is added later may get its number.
///
/// Errors: `HANDOVER_NOT_FOUND` for an unknown flow. Threads: one at a time; `discard` must not use
/// the scheduler. Blocking: never. Ownership: the tokens are the program's.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_sched_remove_flow(
    scheduler: Option<&mut handover_sched>,
    flow: u32,
    discard: handover_sched_discard,
    context: *mut c_void,
) -> handover_status {
    guard(|| {
        let removed = require("scheduler", scheduler)?.get_mut().remove_flow(flow);
        for packet in removed.map_err(flow_fault)? {
            if let Some(discard) = discard {
                // SAFETY: the header demands a function that accepts these arguments; the packet
                // lives until it returns.
                unsafe { discard(&handover_sched_packet::from(packet), context) };
            }
        }
        Ok(())
    })
}

/// Changes the weight of a flow, which may have queued packets; with `prio` its priority, with
/// `pacing` its rate.
///
/// Errors: `HANDOVER_NOT_FOUND` for an unknown flow; `HANDOVER_INVALID_ARGUMENT` for a weight
/// outside the discipline's range, or a discipline without weights. Threads: one at a time.
/// Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_sched_set_weight(
    scheduler: Option<&mut handover_sched>,
    now_ns: u64,
    flow: u32,
    weight: u64,
) -> handover_status {
    guard(|| {
        let scheduler = require("scheduler", scheduler)?.get_mut();
        scheduler.set_weight(now_ns, flow, weight).map_err(flow_fault)
    })
}

/// Changes the weight of a tenant, as `handover_sched_set_weight` does that of a flow.
///
/// Errors: `HANDOVER_NOT_FOUND` for an unknown tenant; `HANDOVER_INVALID_ARGUMENT` for a weight
/// outside the discipline's range, or a scheduler without tenants. Threads: one at a time.
/// Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_sched_set_tenant_weight(
    scheduler: Option<&mut handover_sched>,
    now_ns: u64,
    tenant: u32,
    weight: u64,
) -> handover_status {
    guard(|| {
        let tenants = require("scheduler", scheduler)?.tenants()?;
        tenants.set_tenant_weight(now_ns, tenant, weight).map_err(flow_fault)
    })
}

fn refusal_fault(reason: Refusal) -> Fault {
    match reason {
        Refusal::FlowFull | Refusal::Full => HANDOVER_FULL.into(),
        Refusal::UnknownFlow | Refusal::NoMoreFlows => HANDOVER_NOT_FOUND.because(reason),
        _ => HANDOVER_INVALID_ARGUMENT.because(reason),
    }
}

/// Queues a copy of the packet. `now_ns` is the current time on any clock that does not go back.
///
/// If the oldest packet of the flow was dropped for it, `*has_dropped` is `true` and the dropped
/// packet goes to `dropped`, which may be `packet`. Both may be null; if `dropped` is not null,
/// `has_dropped` must not be null either.
///
/// Errors: `HANDOVER_FULL`, which sets no last error; `HANDOVER_NOT_FOUND` for an unknown flow;
/// `HANDOVER_INVALID_ARGUMENT` for a length that the flow does not allow. Threads: one at a time.
/// Blocking: never. Ownership: the scheduler keeps the token until it gives the packet back; that
/// of a packet that is dropped while `dropped` is null is not returned.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn handover_sched_enqueue(
    scheduler: Option<&mut handover_sched>,
    now_ns: u64,
    packet: *const handover_sched_packet,
    has_dropped: Option<&mut MaybeUninit<bool>>,
    dropped: *mut handover_sched_packet,
) -> handover_status {
    guard(|| {
        let scheduler = require("scheduler", scheduler)?.get_mut();
        // SAFETY: the header demands a packet, or null. It is copied, as `dropped` may be the same.
        let packet = *require("packet", unsafe { packet.as_ref() })?;
        let handover_sched_packet { flow, length_bytes, token } = packet;
        if !dropped.is_null() && has_dropped.is_none() {
            return Err(HANDOVER_NULL_ARGUMENT.because("has_dropped: must not be null"));
        }
        let packet = Packet { flow, length_bytes, token: UserPointer(token) };
        let accepted = scheduler.enqueue(now_ns, packet).map_err(|it| refusal_fault(it.reason))?;
        let old = match accepted {
            EnqueueOutcome::Queued => None,
            EnqueueOutcome::Replaced(old) => Some(old),
        };
        put(has_dropped, old.is_some());
        if let Some(old) = old
            && !dropped.is_null()
        {
            // SAFETY: the header demands memory for a packet, or null.
            unsafe { dropped.write(old.into()) };
        }
        Ok(())
    })
}

/// Dequeues the next packet that may leave at `now_ns` into `packet`.
///
/// Errors: `HANDOVER_EMPTY`, which sets no last error, if none may leave.
/// Threads: one at a time. Blocking: never. Ownership: the scheduler no longer keeps the token.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_sched_dequeue(
    scheduler: Option<&mut handover_sched>,
    now_ns: u64,
    packet: Option<&mut MaybeUninit<handover_sched_packet>>,
) -> handover_status {
    guard(|| {
        let scheduler = require("scheduler", scheduler)?.get_mut();
        let place = require("packet", packet)?;
        place.write(scheduler.dequeue(now_ns).ok_or(HANDOVER_EMPTY)?.into());
        Ok(())
    })
}

/// Stores the earliest time at which a packet can be dequeued, if no packet is added before: 0 for
/// all disciplines but `pacing`.
///
/// Errors: `HANDOVER_EMPTY`, which sets no last error, if no packet is queued.
/// Threads: one at a time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_sched_ready_ns(
    scheduler: Option<&handover_sched>,
    ready_ns: Option<&mut MaybeUninit<u64>>,
) -> handover_status {
    guard(|| {
        let scheduler = require("scheduler", scheduler)?.get();
        require("ready_ns", ready_ns)?.write(scheduler.ready_ns().ok_or(HANDOVER_EMPTY)?);
        Ok(())
    })
}

/// Stores the counters of a scheduler.
///
/// Threads: one at a time. Blocking: never.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_sched_count(
    scheduler: Option<&handover_sched>,
    totals: Option<&mut MaybeUninit<handover_sched_totals>>,
) -> handover_status {
    guard(|| {
        let it = require("scheduler", scheduler)?.get().totals();
        let (enqueued, dequeued, dropped, refused) =
            (it.enqueued, it.dequeued, it.dropped, it.refused);
        require("totals", totals)?.write(handover_sched_totals {
            enqueued,
            dequeued,
            dropped,
            refused,
        });
        Ok(())
    })
}

/// Destroys a scheduler; null is ignored. Tokens of queued packets are not returned.
///
/// Threads: any, while no other thread uses it. Blocking: never. Ownership: the handle is invalid
/// afterwards.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
pub extern "C" fn handover_sched_destroy(scheduler: Option<Box<handover_sched>>) {
    drop(scheduler);
}
