//! Scheduler made of a queue for each flow and an order of the flows.

use super::config::{Config, ConfigError, check_spec};
use super::scheduler::make_flows;
use super::table::{FlowStates, FlowTable, NO_FLOW, PushResult};
use super::{EnqueueOutcome, EnqueueResult, FlowError, FlowSpec, Packet, Scheduler, Totals};
use std::fmt::Debug;

/// Scheduling algorithm: chooses the flow that sends its oldest packet next. It knows packets by
/// their lengths alone; [`FlowScheduler`] or [`super::Hierarchy`] stores the packets.
///
/// The calls for one flow come in this order: `activate_flow` when it gets its first packet; then,
/// any number of times, `choose_flow` returns it and `record_served` follows at once. The last
/// `record_served` has no next packet, and then `activate_flow` may follow again. In place of
/// `record_served`, `deactivate_flow` says that all of its packets were dropped. `set_weight` may
/// come at any time, and `release_flow` while it has no packets. `record_lone_packet` may take the
/// place of all calls for a packet ([`Discipline::CAN_SKIP_LONE_PACKETS`]).
pub trait Discipline: Sized {
    /// State that the algorithm keeps for each flow; it is stored in the flow's cache line.
    type State: Copy + Debug;

    /// Alignment of a flow in memory. It is [`super::HalfLine`] if `State` takes at most 8 bytes,
    /// aligned to 4; else [`super::Line`].
    type Align: Copy + Debug;

    /// Maximum weight of a flow.
    const WEIGHT_MAX: u64;

    /// `true` if `choose_flow` may return `None` while flows have packets.
    const CAN_HOLD_BACK: bool = false;

    /// `true` if `record_lone_packet` may take the place of all calls for a packet that was queued
    /// and sent while no other packet was queued. `activate_flow` must not use the time then: it
    /// may be called later, when another flow gets a packet. Not together with
    /// [`Self::CAN_HOLD_BACK`], and `record_lone_packet` must be implemented.
    const CAN_SKIP_LONE_PACKETS: bool = false;

    /// Creates the algorithm's state, without flows, from a valid configuration.
    fn new(config: &Config) -> Self;

    /// Admits a flow whose weight and length are within the limits; returns the flow's initial
    /// state.
    ///
    /// # Errors
    /// [`FlowError`] if the algorithm cannot hold the flow; then nothing has changed.
    fn admit_flow(&mut self, spec: &FlowSpec) -> Result<Self::State, FlowError>;

    /// Records that flow `id`, which was empty, has received a packet of `bytes` bytes.
    fn activate_flow<S: FlowStates<Self::State>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        now_ns: u64,
    );

    /// Returns the flow whose oldest packet is to be sent now. Returns `None` if no packet may be
    /// sent yet. The flow keeps its position until [`Discipline::record_served`].
    fn choose_flow<S: FlowStates<Self::State>>(
        &mut self,
        states: &mut S,
        now_ns: u64,
    ) -> Option<u32>;

    /// Records that the flow returned by `choose_flow` has sent a packet of `bytes` bytes. Its next
    /// packet has `next_bytes` bytes; `None` if it has no more packets.
    fn record_served<S: FlowStates<Self::State>>(
        &mut self,
        states: &mut S,
        id: u32,
        bytes: u32,
        next_bytes: Option<u32>,
    );

    /// Records that a flow's oldest packet, of `dropped_bytes` bytes, was dropped. The flow's
    /// oldest packet now has `oldest_bytes` bytes. By default, this packet takes over the
    /// dropped one's position.
    fn record_oldest_dropped<S: FlowStates<Self::State>>(
        &mut self,
        _states: &mut S,
        _id: u32,
        _dropped_bytes: u32,
        _oldest_bytes: u32,
    ) {
    }

    /// Records that all packets of flow `id` were dropped; there was at least one.
    fn deactivate_flow<S: FlowStates<Self::State>>(&mut self, states: &mut S, id: u32);

    /// Removes flow `id`, which has no packets: the inverse of [`Discipline::admit_flow`].
    fn release_flow<S: FlowStates<Self::State>>(&mut self, states: &mut S, id: u32);

    /// Changes the weight of flow `id` to the weight of `spec`. All values of `spec` are within the
    /// limits. The flow's oldest packet has `oldest_bytes` bytes; `None` if it has no packets.
    ///
    /// # Errors
    /// [`FlowError`] if the algorithm cannot hold the flow with this weight; then nothing has
    /// changed.
    fn set_weight<S: FlowStates<Self::State>>(
        &mut self,
        states: &mut S,
        id: u32,
        spec: &FlowSpec,
        oldest_bytes: Option<u32>,
        now_ns: u64,
    ) -> Result<(), FlowError>;

    /// Records that the last queued packet has left or was dropped, unless `record_lone_packet`
    /// takes its place.
    fn record_idle(&mut self) {}

    /// Records that a packet of `bytes` bytes was queued and sent while no other packet was queued.
    /// Called only if [`Discipline::CAN_SKIP_LONE_PACKETS`] is `true`.
    fn record_lone_packet(&mut self, _bytes: u32) {}

    /// Returns the earliest time at which `choose_flow` returns a flow; called only while a flow
    /// has packets. 0 for algorithms that never hold packets back.
    fn ready_ns(&self) -> u64 {
        0
    }

    /// Returns the flow that will be chosen after `positions` others, so that its memory can be
    /// prefetched. Returns `None` if that flow is unknown.
    #[inline(always)]
    fn flow_ahead(&self, _positions: usize) -> Option<u32> {
        None
    }
}

/// Minimum number of flows for which the flows' memory is prefetched. It then exceeds the
/// first-level cache.
const PREFETCH_FLOWS_MIN: usize = 1024;

/// Scheduler with a queue for each flow; a [`Discipline`] orders the flows.
#[derive(Debug)]
pub struct FlowScheduler<T: Copy + Debug, D: Discipline> {
    table: FlowTable<T, D::State, D::Align>,
    /// Algorithm that orders the flows.
    order: D,
    template: Option<FlowSpec>,
    /// Only flow with packets, if `order` does not know of them yet; otherwise [`NO_FLOW`].
    deferred_flow: u32,
}

impl<T: Copy + Debug, D: Discipline> FlowScheduler<T, D> {
    /// Creates a scheduler without flows.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid field.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        const { assert!(!(D::CAN_SKIP_LONE_PACKETS && D::CAN_HOLD_BACK)) };
        config.validate()?;
        if let Some(spec) = &config.template {
            check_spec(spec, D::WEIGHT_MAX).map_err(ConfigError::Template)?;
            D::new(config).admit_flow(spec).map_err(ConfigError::Template)?;
        }
        Ok(Self {
            table: FlowTable::new(config),
            order: D::new(config),
            template: config.template,
            deferred_flow: NO_FLOW,
        })
    }

    /// Activates the flow whose activation was deferred, if any. Must be called before any method
    /// of `order` that depends on the flows with packets.
    #[inline(always)]
    fn end_deferral(&mut self) {
        if D::CAN_SKIP_LONE_PACKETS && self.deferred_flow != NO_FLOW {
            self.activate_deferred();
        }
    }

    /// Activates the flow whose activation was deferred.
    #[inline(never)]
    fn activate_deferred(&mut self) {
        let id = std::mem::replace(&mut self.deferred_flow, NO_FLOW);
        if let Some(bytes) = self.table.oldest_bytes(id) {
            // Algorithms that skip lone packets do not use the time.
            self.order.activate_flow(&mut self.table, id, bytes, 0);
        }
    }

    /// Handles a packet that [`FlowTable::push`] did not queue. Creates its flow, drops the flow's
    /// oldest packet, or refuses the packet.
    #[cold]
    #[inline(never)]
    fn enqueue_rare(
        &mut self,
        now_ns: u64,
        packet: Packet<T>,
        pushed: PushResult,
    ) -> EnqueueResult<T> {
        let reason = match pushed {
            PushResult::NoFlow => {
                match make_flows(self, self.template, self.table.flows_max, packet.flow) {
                    Ok(()) => return Scheduler::enqueue(self, now_ns, packet),
                    Err(reason) => reason,
                }
            }
            PushResult::FlowFull { drops_head: true } => {
                self.end_deferral();
                return self.table.replace_oldest(&mut self.order, &packet);
            }
            refused => refused.refusal(packet.length_bytes),
        };
        self.table.refuse(packet, reason)
    }
}

impl<T: Copy + Debug, D: Discipline> Scheduler<T> for FlowScheduler<T, D> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        self.table.check_space()?;
        check_spec(&spec, D::WEIGHT_MAX)?;
        self.end_deferral();
        let state = self.order.admit_flow(&spec)?;
        Ok(self.table.add(&spec, state))
    }

    fn flows_count(&self) -> u32 {
        self.table.flows_count()
    }

    fn remove_flow(&mut self, flow: u32) -> Result<Vec<Packet<T>>, FlowError> {
        self.table.spec(flow, 1)?;
        self.end_deferral();
        if self.table.oldest_bytes(flow).is_some() {
            self.order.deactivate_flow(&mut self.table, flow);
        }
        self.order.release_flow(&mut self.table, flow);
        let packets = self.table.remove(flow);
        if !packets.is_empty() && self.table.len() == 0 {
            self.order.record_idle();
        }
        Ok(packets)
    }

    fn set_weight(&mut self, now_ns: u64, flow: u32, weight: u64) -> Result<(), FlowError> {
        let spec = self.table.spec(flow, weight)?;
        check_spec(&spec, D::WEIGHT_MAX)?;
        self.end_deferral();
        let oldest_bytes = self.table.oldest_bytes(flow);
        self.order.set_weight(&mut self.table, flow, &spec, oldest_bytes, now_ns)
    }

    #[inline(always)]
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> EnqueueResult<T> {
        match self.table.push(&packet) {
            PushResult::Behind => Ok(EnqueueOutcome::Queued),
            PushResult::First => {
                if D::CAN_SKIP_LONE_PACKETS && self.table.len() == 1 {
                    self.deferred_flow = packet.flow;
                    return Ok(EnqueueOutcome::Queued);
                }
                self.end_deferral();
                self.order.activate_flow(&mut self.table, packet.flow, packet.length_bytes, now_ns);
                Ok(EnqueueOutcome::Queued)
            }
            pushed => self.enqueue_rare(now_ns, packet, pushed),
        }
    }

    #[inline(always)]
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<T>> {
        if D::CAN_SKIP_LONE_PACKETS && self.deferred_flow != NO_FLOW {
            if self.table.len() == 1 {
                let id = std::mem::replace(&mut self.deferred_flow, NO_FLOW);
                let packet = self.table.pop(id).packet;
                self.table.totals.dequeued += 1;
                self.order.record_lone_packet(packet.length_bytes);
                return Some(packet);
            }
            self.activate_deferred();
        }
        let id = self.order.choose_flow(&mut self.table, now_ns)?;
        let popped = self.table.pop(id);
        self.table.totals.dequeued += 1;
        let packet = popped.packet;
        self.order.record_served(&mut self.table, id, packet.length_bytes, popped.next_bytes);
        if popped.next_bytes.is_none() && self.table.len() == 0 {
            self.order.record_idle();
        }
        if self.table.slots_count() >= PREFETCH_FLOWS_MIN {
            if let Some(far) = self.order.flow_ahead(8) {
                self.table.prefetch(far);
            }
            if let Some(near) = self.order.flow_ahead(4) {
                self.table.prefetch_head(near);
            }
        }
        Some(packet)
    }

    fn ready_ns(&self) -> Option<u64> {
        (self.table.len() > 0).then(|| self.order.ready_ns())
    }

    fn len(&self) -> usize {
        self.table.len()
    }

    fn totals(&self) -> Totals {
        self.table.totals
    }
}
