//! A queue for each flow, and an algorithm that orders the flows.

use super::config::{Config, ConfigError, check_spec};
use super::table::{Pushed, Slots, Table};
use super::{Accepted, FlowError, FlowSpec, Packet, Refusal, Refused, Scheduler, Totals};
use std::fmt::Debug;

/// An order of flows. It sees of the packets only the length of each flow's oldest; the packets
/// themselves lie in [`Queued`], or in [`super::Hierarchy`].
///
/// The calls for one flow come in this order: `activate` when it gets its first packet; then `choose`
/// names it and `served` follows at once, any number of times, the last of them without a next packet,
/// after which `activate` may come again.
pub trait Discipline: Sized {
    /// What it keeps for each flow, in the flow's own cache line.
    type Hot: Copy + Debug;

    /// [`super::HalfLine`] where `Hot` takes 8 bytes or fewer, aligned to 4; [`super::Line`] else.
    type Align: Copy + Debug;

    /// The largest weight.
    const WEIGHT_MAX: u64;

    /// Whether `choose` may give nothing while flows have packets.
    const HOLDS_BACK: bool = false;

    /// Of a valid configuration.
    fn new(config: &Config) -> Self;

    /// Takes a flow whose weight and length lie within the limits.
    ///
    /// # Errors
    /// Where the algorithm cannot hold it; then nothing has changed.
    fn admit(&mut self, spec: &FlowSpec) -> Result<Self::Hot, FlowError>;

    /// The flow `id` has packets from now on; the first is so long.
    fn activate<S: Slots<Self::Hot>>(&mut self, slots: &mut S, id: u32, bytes: u32, now_ns: u64);

    /// The flow whose oldest packet goes now; it stays where it is until [`Discipline::served`].
    fn choose<S: Slots<Self::Hot>>(&mut self, slots: &mut S, now_ns: u64) -> Option<u32>;

    /// The flow that was just chosen has sent a packet of so many bytes, and its next is so long.
    fn served<S: Slots<Self::Hot>>(
        &mut self,
        slots: &mut S,
        id: u32,
        bytes: u32,
        next_bytes: Option<u32>,
    );

    /// The oldest packet of a flow that has some was dropped; the one that is the oldest now is so
    /// long.
    fn changed<S: Slots<Self::Hot>>(&mut self, slots: &mut S, id: u32, before: u32, bytes: u32);

    /// No flow has a packet any more.
    fn idle(&mut self) {}

    /// When `choose` gives a flow at the earliest, asked only while some flow has packets.
    fn ready_ns(&self) -> u64 {
        0
    }

    /// The flow that is chosen after so many others, where that is known without looking far: its
    /// memory is asked for ahead.
    #[inline(always)]
    fn ahead(&self, _places: usize) -> Option<u32> {
        None
    }
}

/// From so many flows on they do not all stay in the nearest caches, and are asked for ahead.
const FETCH_FLOWS_MIN: u32 = 1024;

/// The scheduler of a [`Discipline`]: it keeps the packets, the limits and the totals.
#[derive(Debug)]
pub struct Queued<T: Copy + Debug, D: Discipline> {
    table: Table<T, D::Hot, D::Align>,
    order: D,
    template: Option<FlowSpec>,
}

impl<T: Copy + Debug, D: Discipline> Queued<T, D> {
    /// A scheduler without flows.
    ///
    /// # Errors
    /// [`ConfigError`] names what is out of its range.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.validate()?;
        if let Some(spec) = &config.template {
            check_spec(spec, D::WEIGHT_MAX)?;
            D::new(config).admit(spec)?;
        }
        Ok(Self { table: Table::new(config), order: D::new(config), template: config.template })
    }

    /// What does not happen to most packets.
    #[cold]
    #[inline(never)]
    fn enqueue_rare(
        &mut self,
        now_ns: u64,
        packet: Packet<T>,
        pushed: Pushed,
    ) -> Result<Accepted<T>, Refused<T>> {
        let why = match pushed {
            Pushed::NoFlow => match self.make_flows(packet.flow) {
                Ok(()) => return Scheduler::enqueue(self, now_ns, packet),
                Err(why) => why,
            },
            Pushed::FlowFull { drops_head: true } => {
                return Ok(Accepted::InsteadOf(self.replace_oldest(now_ns, packet)));
            }
            Pushed::BadLength if packet.length_bytes == 0 => Refusal::Empty,
            Pushed::BadLength => Refusal::TooLong,
            Pushed::FlowFull { .. } => Refusal::FlowFull,
            Pushed::Full | Pushed::First | Pushed::Behind => Refusal::Full,
        };
        self.table.totals.refused += 1;
        Err(Refused { packet, why })
    }

    /// Makes the flows up to this one, by the template.
    fn make_flows(&mut self, flow: u32) -> Result<(), Refusal> {
        let spec = self.template.ok_or(Refusal::UnknownFlow)?;
        while self.table.flows_count() <= flow {
            self.add_flow(spec).map_err(|_| Refusal::NoMoreFlows)?;
        }
        Ok(())
    }

    /// Drops the oldest packet of a full flow and queues this one.
    fn replace_oldest(&mut self, now_ns: u64, packet: Packet<T>) -> Packet<T> {
        let popped = self.table.pop(packet.flow);
        self.table.totals.dropped += 1;
        // The node that was freed is taken, and the flow has room for one: this cannot fail.
        let pushed = self.table.push(&packet);
        debug_assert!(matches!(pushed, Pushed::First | Pushed::Behind));
        let (id, before) = (packet.flow, popped.packet.length_bytes);
        let bytes = popped.next_bytes.unwrap_or(packet.length_bytes);
        let _ = now_ns; // when a packet goes depends on its flow's past, not on this moment
        self.order.changed(&mut self.table, id, before, bytes);
        popped.packet
    }
}

impl<T: Copy + Debug, D: Discipline> Scheduler<T> for Queued<T, D> {
    fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
        self.table.check_room()?;
        check_spec(&spec, D::WEIGHT_MAX)?;
        let hot = self.order.admit(&spec)?;
        Ok(self.table.add(&spec, hot))
    }

    fn flows_count(&self) -> u32 {
        self.table.flows_count()
    }

    #[inline(always)]
    fn enqueue(&mut self, now_ns: u64, packet: Packet<T>) -> Result<Accepted<T>, Refused<T>> {
        match self.table.push(&packet) {
            Pushed::Behind => Ok(Accepted::Queued),
            Pushed::First => {
                self.order.activate(&mut self.table, packet.flow, packet.length_bytes, now_ns);
                Ok(Accepted::Queued)
            }
            pushed => self.enqueue_rare(now_ns, packet, pushed),
        }
    }

    #[inline(always)]
    fn dequeue(&mut self, now_ns: u64) -> Option<Packet<T>> {
        let id = self.order.choose(&mut self.table, now_ns)?;
        let popped = self.table.pop(id);
        self.table.totals.dequeued += 1;
        let packet = popped.packet;
        self.order.served(&mut self.table, id, packet.length_bytes, popped.next_bytes);
        if popped.next_bytes.is_none() && self.table.len() == 0 {
            self.order.idle();
        }
        if self.table.flows_count() >= FETCH_FLOWS_MIN {
            if let Some(far) = self.order.ahead(8) {
                self.table.fetch(far);
            }
            if let Some(near) = self.order.ahead(4) {
                self.table.fetch_head(near);
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
