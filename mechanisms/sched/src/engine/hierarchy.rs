//! Two levels: tenants share the link, and each tenant's flows share the tenant's part.

use super::config::{Config, ConfigError, check_spec};
use super::scheduler::make_flows;
use super::table::{FlowStates, FlowTable, PushResult};
use super::{
    Discipline, DropPolicy, EnqueueOutcome, EnqueueResult, FlowError, FlowSpec, Packet, Scheduler,
    Totals,
};
use handover_base::prefetch;
use std::fmt::Debug;

/// Two-level scheduler: tenants share the link, and a tenant's flows share the tenant's part of it.
pub trait Tenants<T: Copy + Debug>: Scheduler<T> {
    /// Adds a tenant, and returns its number: 0 for the first. `weight` counts among the tenants.
    /// The longest packets of its flows must not exceed `length_max_bytes`.
    ///
    /// # Errors
    /// [`FlowError`] if the tenants' algorithm cannot hold it, as for a flow.
    fn add_tenant(&mut self, weight: u64, length_max_bytes: u32) -> Result<u32, FlowError>;

    /// Adds a flow to a tenant, and returns the flow's number. The flow's weight counts among the
    /// tenant's flows. Flows are numbered over all tenants together.
    ///
    /// # Errors
    /// [`FlowError`] if the flows' algorithm cannot hold it.
    fn add_flow_of(&mut self, tenant: u32, spec: FlowSpec) -> Result<u32, FlowError>;

    /// Changes the weight of a tenant among the tenants. The effect is that of
    /// [`Scheduler::set_weight`] on a flow.
    ///
    /// # Errors
    /// [`FlowError::Tenant`] if there is no such tenant; otherwise as for a flow.
    fn set_tenant_weight(&mut self, now_ns: u64, tenant: u32, weight: u64)
    -> Result<(), FlowError>;

    /// Returns the number of tenants.
    fn tenants_count(&self) -> u32;
}

/// Returns the properties of the flow that stands for a tenant in the tenants' algorithm.
fn tenant_spec(weight: u64, length_max_bytes: u32) -> FlowSpec {
    FlowSpec { weight, length_max_bytes, packets_max: 1, drop: DropPolicy::Tail }
}

/// Scheduler in which algorithm `O` orders the tenants, and algorithm `I` the flows of each tenant.
///
/// Each tenant's next packet is chosen ahead by the order of its own flows and held by the tenant;
/// the tenants' order sees only these packets. Each tenant has a separate virtual time, so that the
/// shares of its flows do not depend on other tenants. The packets that tenants hold count neither
/// towards their flows' limits nor towards the scheduler's.
///
/// [`Scheduler::add_flow`] adds to the tenant that was added last, and so do flows that are made by
/// their first packets.
///
/// Source: J. C. R. Bennett, H. Zhang, Hierarchical Packet Fair Queueing Algorithms, IEEE/ACM
/// Transactions on Networking 5(5), 1997 (H-PFQ, with any algorithm at either level).
///
/// Cost: both algorithms' cost for each packet; up to 40 KB for each tenant.
#[derive(Debug)]
pub struct Hierarchy<T: Copy + Debug, O: Discipline, I: Discipline> {
    config: Config,
    flows: FlowTable<T, I::State, I::Align>,
    /// Tenant of each flow, indexed by flow number.
    tenant_of: Vec<u32>,
    tenants: Vec<Tenant<T, O::State, I>>,
    /// Algorithm that orders the tenants.
    order: O,
}

/// Tenant: its flows' algorithm and its next packet.
#[derive(Debug)]
struct Tenant<T, H, I> {
    /// State of the tenant in the tenants' algorithm.
    state: H,
    /// Algorithm that orders the tenant's flows.
    order: I,
    /// Packet that the tenant sends next, already removed from its flow.
    next_packet: Option<Packet<T>>,
    length_max_bytes: u32,
}

impl<T: Copy + Debug, H: Copy, I> FlowStates<H> for Vec<Tenant<T, H, I>> {
    #[inline(always)]
    fn state(&mut self, id: u32) -> &mut H {
        &mut self[id as usize].state
    }

    #[inline(always)]
    fn prefetch(&self, id: u32) {
        prefetch::for_read(&self[id as usize].state);
    }
}

impl<T: Copy + Debug, O: Discipline, I: Discipline> Hierarchy<T, O, I> {
    /// Creates a scheduler without tenants.
    ///
    /// # Errors
    /// [`ConfigError`] names the invalid field, or the flows' algorithm if it holds packets back
    /// ([`super::Pacing`]), which only the tenants' may.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.validate()?;
        if I::CAN_HOLD_BACK {
            return Err(ConfigError::HoldsBack);
        }
        if let Some(spec) = &config.template {
            check_spec(spec, I::WEIGHT_MAX).map_err(ConfigError::Template)?;
            I::new(config).admit_flow(spec).map_err(ConfigError::Template)?;
        }
        Ok(Self {
            config: *config,
            flows: FlowTable::new(config),
            tenant_of: Vec::with_capacity(config.flows_max as usize),
            tenants: Vec::new(),
            order: O::new(config),
        })
    }

    /// Dequeues the next packet of the tenant's flows and stores it as the tenant's next packet.
    /// Returns its length, or `None` if no flow has a packet.
    #[inline(always)]
    fn hold_next(&mut self, tenant: u32, now_ns: u64) -> Option<u32> {
        let tenant = &mut self.tenants[tenant as usize];
        let id = tenant.order.choose_flow(&mut self.flows, now_ns)?;
        let popped = self.flows.pop(id);
        let bytes = popped.packet.length_bytes;
        tenant.order.record_served(&mut self.flows, id, bytes, popped.next_bytes);
        tenant.next_packet = Some(popped.packet);
        Some(bytes)
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
                let Config { template, flows_max, .. } = self.config;
                match make_flows(self, template, flows_max, packet.flow) {
                    Ok(()) => return self.enqueue(now_ns, packet),
                    Err(reason) => reason,
                }
            }
            PushResult::FlowFull { drops_head: true } => {
                let tenant = self.tenant_of[packet.flow as usize] as usize;
                return self.flows.replace_oldest(&mut self.tenants[tenant].order, &packet);
            }
            refused => refused.refusal(packet.length_bytes),
        };
        self.flows.refuse(packet, reason)
    }
}

impl<T: Copy + Debug, O: Discipline, I: Discipline> Tenants<T> for Hierarchy<T, O, I> {
    fn add_tenant(&mut self, weight: u64, length_max_bytes: u32) -> Result<u32, FlowError> {
        let tenants_max = self.config.flows_max;
        if self.tenants.len() >= tenants_max as usize {
            return Err(FlowError::Flows { flows_max: tenants_max });
        }
        let spec = tenant_spec(weight, length_max_bytes);
        check_spec(&spec, O::WEIGHT_MAX)?;
        let state = self.order.admit_flow(&spec)?;
        let order = I::new(&self.config);
        self.tenants.push(Tenant { state, order, next_packet: None, length_max_bytes });
        Ok(self.tenants_count() - 1)
    }

    fn add_flow_of(&mut self, tenant: u32, spec: FlowSpec) -> Result<u32, FlowError> {
        self.flows.check_space()?;
        check_spec(&spec, I::WEIGHT_MAX)?;
        let tenants_count = self.tenants_count();
        let owner = self.tenants.get_mut(tenant as usize);
        let owner = owner.ok_or(FlowError::Tenant { tenant, tenants_count })?;
        if spec.length_max_bytes > owner.length_max_bytes {
            return Err(FlowError::Length {
                length_max_bytes: spec.length_max_bytes,
                limit_bytes: owner.length_max_bytes,
            });
        }
        let state = owner.order.admit_flow(&spec)?;
        let id = self.flows.add(&spec, state);
        match self.tenant_of.get_mut(id as usize) {
            Some(free) => *free = tenant,
            None => self.tenant_of.push(tenant),
        }
        Ok(id)
    }

    fn set_tenant_weight(
        &mut self,
        now_ns: u64,
        tenant: u32,
        weight: u64,
    ) -> Result<(), FlowError> {
        let tenants_count = self.tenants_count();
        let it = self.tenants.get(tenant as usize);
        let it = it.ok_or(FlowError::Tenant { tenant, tenants_count })?;
        let spec = tenant_spec(weight, it.length_max_bytes);
        check_spec(&spec, O::WEIGHT_MAX)?;
        let oldest_bytes = it.next_packet.map(|packet| packet.length_bytes);
        self.order.set_weight(&mut self.tenants, tenant, &spec, oldest_bytes, now_ns)
    }

    fn tenants_count(&self) -> u32 {
        self.tenants.len() as u32
    }
}

impl<T: Copy + Debug, O: Discipline, I: Discipline> Scheduler<T> for Hierarchy<T, O, I> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        self.add_flow_of(self.tenants_count().saturating_sub(1), spec)
    }

    fn flows_count(&self) -> u32 {
        self.flows.flows_count()
    }

    fn remove_flow(&mut self, flow: u32) -> Result<Vec<Packet<T>>, FlowError> {
        self.flows.spec(flow, 1)?;
        let id = self.tenant_of[flow as usize];
        let tenant = &mut self.tenants[id as usize];
        if self.flows.oldest_bytes(flow).is_some() {
            tenant.order.deactivate_flow(&mut self.flows, flow);
        }
        let held = tenant.next_packet.take_if(|packet| packet.flow == flow);
        if let Some(held) = held {
            self.flows.totals.dropped += 1;
            // Algorithms that hold no packets back do not use the time.
            match self.hold_next(id, 0) {
                Some(bytes) => {
                    let tenants = &mut self.tenants;
                    self.order.record_oldest_dropped(tenants, id, held.length_bytes, bytes);
                }
                None => {
                    self.order.deactivate_flow(&mut self.tenants, id);
                    self.tenants[id as usize].order.record_idle();
                }
            }
        }
        self.tenants[id as usize].order.release_flow(&mut self.flows, flow);
        let mut packets: Vec<_> = held.into_iter().collect();
        packets.append(&mut self.flows.remove(flow));
        if !packets.is_empty() && self.flows.len() == 0 {
            self.order.record_idle();
        }
        Ok(packets)
    }

    fn set_weight(&mut self, now_ns: u64, flow: u32, weight: u64) -> Result<(), FlowError> {
        let spec = self.flows.spec(flow, weight)?;
        check_spec(&spec, I::WEIGHT_MAX)?;
        let oldest_bytes = self.flows.oldest_bytes(flow);
        let order = &mut self.tenants[self.tenant_of[flow as usize] as usize].order;
        order.set_weight(&mut self.flows, flow, &spec, oldest_bytes, now_ns)
    }

    #[inline]
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> EnqueueResult<T> {
        match self.flows.push(&packet) {
            PushResult::Behind => Ok(EnqueueOutcome::Queued),
            PushResult::First => {
                let id = self.tenant_of[packet.flow as usize];
                let tenant = &mut self.tenants[id as usize];
                let bytes = packet.length_bytes;
                tenant.order.activate_flow(&mut self.flows, packet.flow, bytes, now_ns);
                if tenant.next_packet.is_none()
                    && let Some(bytes) = self.hold_next(id, now_ns)
                {
                    self.order.activate_flow(&mut self.tenants, id, bytes, now_ns);
                }
                Ok(EnqueueOutcome::Queued)
            }
            pushed => self.enqueue_rare(now_ns, packet, pushed),
        }
    }

    #[inline]
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<T>> {
        let id = self.order.choose_flow(&mut self.tenants, now_ns)?;
        let packet = self.tenants[id as usize].next_packet.take()?;
        let next_bytes = self.hold_next(id, now_ns);
        self.flows.totals.dequeued += 1;
        self.order.record_served(&mut self.tenants, id, packet.length_bytes, next_bytes);
        if next_bytes.is_none() {
            self.tenants[id as usize].order.record_idle();
            if self.flows.len() == 0 {
                self.order.record_idle();
            }
        }
        Some(packet)
    }

    fn ready_ns(&self) -> Option<u64> {
        (self.flows.len() > 0).then(|| self.order.ready_ns())
    }

    fn len(&self) -> usize {
        self.flows.len()
    }

    fn totals(&self) -> Totals {
        self.flows.totals
    }
}
