//! Load generator in the manner of dummynet's tester, with the worst-case fair index.
//!
//! The generator gives packets to the flow with the fewest queued packets until `qmax` are queued
//! in all, takes packets out until `qmin` are left, and begins again. It needs no clock: measure
//! the time of [`Tester::run`], and subtract the time of the same steps with [`EmptyScheduler`].
//!
//! ```
//! use handover_suite::sched::tester::{TesterOptions, Tester};
//!
//! let options = TesterOptions::parse(&["-alg", "wf2q+", "-flowsets", "1-100-10:1500:10", "-n", "100K"])?;
//! let mut scheduler = options.algorithm.build::<u64>(&options.config())?;
//! let mut tester = Tester::new(&options, &mut scheduler)?;
//! let report = tester.run(&mut scheduler, options.steps_count);
//! assert!(report.wfi_bytes <= 1500.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: the tester of dummynet (L. Rizzo, 2010); worst-case fairness: J. C. R. Bennett, H.
//! Zhang, INFOCOM 1996.

mod generator;
mod options;

pub use options::{OptionsError, QueueThreshold, TesterOptions};

use generator::Generator;
use handover_sched::engine::{
    EnqueueError, EnqueueOutcome, EnqueueResult, FlowError, FlowSpec, Packet, Refusal, Scheduler,
    Totals,
};
use handover_sched::fairness::FairnessIndex;
use std::fmt::Debug;

/// Type of a token that the generator's packets can carry.
pub trait TesterToken: Copy + Debug + Default {}

impl<T: Copy + Debug + Default> TesterToken for T {}

/// Load generator that enqueues packets to a scheduler, dequeues them, and computes the fairness
/// index.
#[derive(Debug)]
pub struct Tester {
    generator: Generator,
    watch: Option<FairnessIndex>,
    length_limit_bytes: u32,
    now_ns: u64,
    report: TesterReport,
}

/// Results of the test since the [`Tester`] was created.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TesterReport {
    /// Number of packets offered to the scheduler.
    pub enqueued: u64,
    /// Number of packets dequeued.
    pub dequeued: u64,
    /// Number of packets refused, or dropped in favour of newer ones.
    pub dropped: u64,
    /// Maximum lag of any flow behind its share, in bytes.
    pub wfi_bytes: f64,
}

impl TesterReport {
    /// Formats the report like dummynet's tester, for a run of `elapsed_ns` nanoseconds.
    pub fn format_line(&self, name: &str, elapsed_ns: u64, flows: &str) -> String {
        let per_packet_ns = elapsed_ns as f64 / self.enqueued.max(1) as f64;
        let (whole_s, ms) = (elapsed_ns / 1_000_000_000, elapsed_ns / 1_000_000 % 1000);
        let Self { enqueued, dequeued, wfi_bytes, .. } = self;
        format!(
            "sched={name:<12}\ttime={whole_s}.{ms:03} sec ({per_packet_ns:.0} nsec) \
             enq {enqueued} {dequeued} deq\n\twfi={wfi_bytes:.2}\tflow={flows:<16}"
        )
    }
}

impl Tester {
    /// Creates a tester, and adds the flows of `options` to a scheduler without flows.
    ///
    /// # Errors
    /// [`FlowError`] if the scheduler cannot hold the flows.
    pub fn new<T: TesterToken, S: Scheduler<T>>(
        options: &TesterOptions,
        scheduler: &mut S,
    ) -> Result<Self, FlowError> {
        for spec in options.flows.specs(options.packets_max()) {
            scheduler.add_flow(spec)?;
        }
        Ok(Self {
            generator: Generator::new(options),
            watch: Some(FairnessIndex::new(options.flows.flows().map(|(weight, _)| weight.into()))),
            length_limit_bytes: options.length_bytes.unwrap_or(u32::MAX),
            now_ns: 0,
            report: TesterReport::default(),
        })
    }

    /// Returns the tester without the fairness index, whose computation costs about as much as a
    /// scheduler.
    pub fn without_fairness(mut self) -> Self {
        self.watch = None;
        self
    }

    /// Runs `steps` steps, each of which enqueues or dequeues a packet; returns the results since
    /// the tester was created. The worst-case fairness index is updated when a flow has no packet
    /// left.
    #[inline]
    pub fn run<T: TesterToken, S: Scheduler<T>>(
        &mut self,
        scheduler: &mut S,
        steps: u64,
    ) -> TesterReport {
        for _ in 0..steps {
            if let Some((flow, length_bytes)) = self.generator.next_packet() {
                self.offer(scheduler, flow, length_bytes.min(self.length_limit_bytes));
            } else {
                self.take(scheduler);
            }
        }
        let wfi_bytes = self.watch.as_ref().map_or(0.0, FairnessIndex::when_empty_bytes);
        TesterReport { wfi_bytes, ..self.report }
    }

    #[inline(always)]
    fn offer<T: TesterToken, S: Scheduler<T>>(&mut self, scheduler: &mut S, flow: u32, bytes: u32) {
        self.report.enqueued += 1;
        let packet = Packet { flow, length_bytes: bytes, token: T::default() };
        match scheduler.enqueue(self.now_ns, packet) {
            Ok(EnqueueOutcome::Queued) => {
                if let Some(watch) = &mut self.watch {
                    watch.record_queued(flow);
                }
            }
            Ok(EnqueueOutcome::Replaced(other)) => {
                self.report.dropped += 1;
                self.generator.record_departure(other.flow);
                if let Some(watch) = &mut self.watch {
                    watch.record_queued(flow);
                    watch.record_dropped(other.flow);
                }
            }
            Err(_) => {
                self.report.dropped += 1;
                self.generator.record_departure(flow);
                self.take(scheduler);
            }
        }
    }

    #[inline(always)]
    fn take<T: TesterToken, S: Scheduler<T>>(&mut self, scheduler: &mut S) {
        if let Some(packet) = self.dequeue(scheduler) {
            self.report.dequeued += 1;
            self.generator.record_departure(packet.flow);
            if let Some(watch) = &mut self.watch {
                watch.record_served(packet.flow, packet.length_bytes);
            }
        }
    }

    /// Dequeues and returns the next packet; if the scheduler delays it, advances the time to its
    /// departure.
    #[inline(always)]
    fn dequeue<T: TesterToken, S: Scheduler<T>>(&mut self, scheduler: &mut S) -> Option<Packet<T>> {
        if let Some(packet) = scheduler.dequeue(self.now_ns) {
            return Some(packet);
        }
        self.now_ns = self.now_ns.max(scheduler.ready_ns()?);
        scheduler.dequeue(self.now_ns)
    }

    /// Keeps every flow of an empty scheduler backlogged with `depth` packets until `packets`
    /// packets were dequeued. The worst-case fairness index in the report is the greatest lag of a
    /// flow behind its share, between any moment of the run and a later departure of one of its
    /// packets. Packets have their flow's longest length or, if `random` (a seed) is not 0, any
    /// length up to it.
    pub fn run_backlogged<T: TesterToken, S: Scheduler<T>>(
        &mut self,
        scheduler: &mut S,
        depth: u32,
        packets: u64,
        random: u64,
    ) -> TesterReport {
        let Some(mut watch) = self.watch.take() else { return self.report };
        let lengths = self.generator.flow_lengths_bytes().to_vec();
        let (mut random, limit_bytes) = (random, self.length_limit_bytes);
        let mut next_packet = |flow: u32| {
            let longest = lengths[flow as usize].min(limit_bytes);
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let shorter = if random == 0 { 0 } else { (random >> 32) as u32 % longest };
            Packet { flow, length_bytes: longest - shorter, token: T::default() }
        };
        for flow in (0..depth).flat_map(|_| 0..lengths.len() as u32) {
            match scheduler.enqueue(self.now_ns, next_packet(flow)) {
                Ok(_) => watch.record_queued(flow),
                Err(_) => self.report.dropped += 1,
            }
            self.report.enqueued += 1;
        }
        for _ in 0..packets {
            let Some(packet) = self.dequeue(scheduler) else { break };
            self.report.dequeued += 1;
            self.report.enqueued += 1;
            // Enqueued before record_served() is called, so that the flow is never without a
            // packet.
            match scheduler.enqueue(self.now_ns, next_packet(packet.flow)) {
                Ok(_) => watch.record_queued(packet.flow),
                Err(_) => self.report.dropped += 1,
            }
            watch.record_served(packet.flow, packet.length_bytes);
        }
        let wfi_bytes = watch.backlogged_bytes();
        self.watch = Some(watch);
        TesterReport { wfi_bytes, ..self.report }
    }
}

/// Scheduler that measures the generator's own cost: first in, first out, regardless of flows and
/// without limits per flow.
#[derive(Debug)]
pub struct EmptyScheduler<T> {
    ring: Vec<Packet<T>>,
    head: usize,
    count: usize,
}

impl<T: TesterToken> EmptyScheduler<T> {
    /// Creates a scheduler for `packets_max` packets, rounded up to a power of two.
    pub fn new(packets_max: u32) -> Self {
        let places = (packets_max as usize).next_power_of_two();
        let empty = Packet { flow: 0, length_bytes: 0, token: T::default() };
        Self { ring: vec![empty; places], head: 0, count: 0 }
    }
}

impl<T: TesterToken> Scheduler<T> for EmptyScheduler<T> {
    fn add_flow(&mut self, _: FlowSpec) -> Result<u32, FlowError> {
        Ok(0)
    }

    fn flows_count(&self) -> u32 {
        0
    }

    #[inline]
    fn enqueue(&mut self, _: u64, packet: Packet<T>) -> EnqueueResult<T> {
        if self.count == self.ring.len() {
            return Err(EnqueueError { packet, reason: Refusal::Full });
        }
        let place = (self.head + self.count) & (self.ring.len() - 1);
        self.ring[place] = packet;
        self.count += 1;
        Ok(EnqueueOutcome::Queued)
    }

    #[inline]
    fn dequeue(&mut self, _: u64) -> Option<Packet<T>> {
        self.count = self.count.checked_sub(1)?;
        let packet = self.ring[self.head];
        self.head = (self.head + 1) & (self.ring.len() - 1);
        Some(packet)
    }

    fn ready_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(0)
    }

    fn len(&self) -> usize {
        self.count
    }

    fn totals(&self) -> Totals {
        Totals::default()
    }
}
