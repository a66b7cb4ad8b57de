//! The driver: packets are conserved, and leave in order, released, stamped and sent, whatever the
//! clients do.

use handover_base::sync::auto_traits;
use handover_sched::drive::{
    Arbiter, ArbiterConfig, ArbiterConfigError, ArbiterThread, Client, ClientFlows, ClientRun,
    Counts, Departure, FinalState, FlowCounter, Hub, IdlePolicy, JoinError, Ledger, Load,
    LoadSection, NullSink, Offer, Record, RunError, SendError, Sink, Stamping, StopMode, Token,
    run_client,
};
use handover_sched::{
    Algorithm, AnyScheduler, DropPolicy, EnqueueResult, FlowError, FlowSpec, Packet, Scheduler,
    Totals, engine,
};
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

fn flow_spec() -> FlowSpec {
    FlowSpec::default().weight(1).length_max_bytes(1500).packets_max(50)
}

/// Time after which a test counts as hung, many times longer than any test takes.
const TIMEOUT: Duration = Duration::from_secs(60);

fn scheduler(algorithm: Algorithm, flows_count: u32, flow: FlowSpec) -> AnyScheduler<Token> {
    let mut scheduler = algorithm.build(&engine::Config::default()).unwrap();
    for number in 0..flows_count {
        let weight = if algorithm == Algorithm::Pacing { 1_000_000_000 } else { flow.weight };
        assert_eq!(scheduler.add_flow(flow.weight(weight)), Ok(number));
    }
    scheduler
}

#[test]
fn handles_are_send_if_the_scheduler_is() {
    type Fine = AnyScheduler<Token>;
    assert_eq!(auto_traits!(Client), "Send + Sync");
    assert_eq!(auto_traits!(Hub), "Send + Sync");
    assert_eq!(auto_traits!(Arbiter<Cell<u8>>), "Send");
    assert_eq!(auto_traits!(Arbiter<Rc<u8>>), "neither");
    assert_eq!(auto_traits!(FinalState<Cell<u8>>), "Send");
    assert_eq!(auto_traits!(FinalState<Rc<u8>>), "neither");
    assert_eq!(auto_traits!(Arbiter<Fine>), auto_traits!(Fine));
    assert_eq!(auto_traits!(ArbiterThread<Fine>), "Send + Sync", "it joins a thread");
}

/// Returns a configuration for threads that share CPUs with other tests.
fn config(stamping: Stamping) -> ArbiterConfig {
    ArbiterConfig::default().stamping(stamping).idle_policy(IdlePolicy::Share)
}

fn start(
    scheduler: AnyScheduler<Token>,
    config: ArbiterConfig,
) -> (Hub, ArbiterThread<AnyScheduler<Token>>) {
    let arbiter = Arbiter::new(scheduler, config).unwrap();
    (arbiter.hub(), arbiter.spawn(|| {}).unwrap())
}

/// Sink that asserts that each flow's tags are in ascending order.
#[derive(Default)]
struct InOrder {
    last: HashMap<u32, u32>,
    packets: u64,
}

impl Sink for InOrder {
    fn transmit(&mut self, packet: Departure) {
        let last = self.last.insert(packet.flow, packet.tag);
        assert!(last.is_none_or(|last| last < packet.tag), "{packet:?} after {last:?}");
        self.packets += 1;
    }
}

/// Sends `packets` packets in uneven bursts through its flows, and waits until all are back.
fn send_all(client: &mut Client, flows: ClientFlows, packets: u32) -> InOrder {
    let (mut sink, mut tag) = (InOrder::default(), 0);
    let deadline = Instant::now() + TIMEOUT;
    let mut offers = flows.map(|flow| {
        tag += 1;
        Offer { flow, length_bytes: 60 + tag % 1400, tag }
    });
    let mut left = packets as usize;
    while left > 0 || client.in_flight_count() > 0 {
        let burst = left.min(1 + left % 70);
        let batch = client.send_batch(&mut offers.by_ref().take(burst));
        assert_eq!(batch.out_of_range, None);
        left -= batch.sent;
        client.poll(100, &mut sink, &mut ()).unwrap();
        assert!(Instant::now() < deadline, "{client:?}");
        if batch.sent == 0 {
            std::thread::yield_now();
        }
    }
    sink
}

/// Asserts that all counters agree, once the clients have left.
fn assert_conserved<S: Scheduler<Token>>(closed: &FinalState<S>) {
    let sum = closed.total_ledger();
    for ledger in closed.client_ledgers() {
        let Ledger { read, unread, released, dropped, discarded, has_left, counts, .. } = ledger;
        assert_eq!(read, released + dropped + discarded + ledger.scheduled_count());
        assert!(counts.sent >= read + unread && released >= counts.transmitted, "{ledger:?}");
        assert!(!has_left || counts.sent == read + unread, "{ledger:?}");
        let ended =
            counts.transmitted + counts.dropped + ledger.queued_count() + ledger.abandoned_count();
        assert_eq!(counts.sent, ended, "{ledger:?}");
    }
    let totals = closed.scheduler.totals();
    assert_eq!(sum.scheduled_count(), closed.scheduler.len() as u64);
    assert_eq!(sum.read, totals.enqueued + totals.refused);
    assert_eq!(sum.dropped, totals.dropped + totals.refused);
    let queued = closed.scheduler.len() as u64;
    assert_eq!(totals.enqueued, totals.dequeued + totals.dropped + queued);
}

#[test]
fn every_algorithm_returns_all_packets_of_each_client_in_order() {
    for &algorithm in Algorithm::ALL {
        // In batches of one, the clients that join and leave change how the mailboxes are read.
        for (stamping, batch_max) in [
            (Stamping::None, 1),
            (Stamping::None, 32),
            (Stamping::Batch, 32),
            (Stamping::Packet, 32),
        ] {
            let config = config(stamping).batch_max(batch_max);
            let (hub, running) = start(scheduler(algorithm, 7, flow_spec()), config);
            std::thread::scope(|scope| {
                for index in 0..3 {
                    let mut client = hub.join().unwrap();
                    scope.spawn(move || {
                        let sink = send_all(&mut client, ClientFlows::new(index, 3, 7), 5_000);
                        let Counts { sent, transmitted, dropped, .. } = client.counts();
                        assert_eq!((sent, transmitted + dropped), (5_000, 5_000), "{algorithm}");
                        assert_eq!(sink.packets, transmitted);
                    });
                }
            });
            hub.stop(StopMode::Drain);
            let closed = running.join();
            assert_conserved(&closed);
            assert_eq!(closed.total_ledger().counts.sent, 15_000, "{algorithm}");
            assert_eq!(closed.total_ledger().discarded, 0);
        }
    }
}

#[test]
fn packets_replaced_by_newer_ones_are_returned_as_dropped() {
    let flow = flow_spec().packets_max(2).drop(DropPolicy::Head);
    let slow = config(Stamping::Batch).bandwidth_bps(Some(1_000_000));
    let (hub, running) = start(scheduler(Algorithm::Rr, 1, flow), slow);
    let mut client = hub.join().unwrap();
    let mut trace: Vec<Record> = Vec::new();
    let offers =
        |tags: std::ops::Range<u32>| tags.map(|tag| Offer { flow: 0, length_bytes: 100, tag });
    assert_eq!(client.send_batch(&mut offers(0..50)).sent, 50);
    let mut sink = InOrder::default();
    let deadline = Instant::now() + TIMEOUT;
    while client.in_flight_count() > 0 && Instant::now() < deadline {
        client.poll(100, &mut sink, &mut trace).unwrap();
    }
    let counts = client.counts();
    assert_eq!(counts.transmitted + counts.dropped, 50);
    assert_eq!(trace.iter().filter(|record| record.is_dropped).count() as u64, counts.dropped);
    assert!(counts.dropped > 0 && sink.last[&0] == 49, "the newest is sent: {counts:?}");
    drop(client);
    hub.stop(StopMode::Now);
    assert_conserved(&running.join());
}

/// Sink that panics at the packet of this tag, and keeps all tags.
struct PanickingSink {
    at_tag: u32,
    tags: Vec<u32>,
}

impl Sink for PanickingSink {
    fn transmit(&mut self, packet: Departure) {
        self.tags.push(packet.tag);
        if packet.tag == self.at_tag {
            resume_unwind(Box::new("on purpose"));
        }
    }
}

/// Lets the client's caller panic in an iterator of offers, then in a sink, both in the middle of a
/// run.
fn check_packets_survive_panics(stamping: Stamping) {
    let config = config(stamping);
    let arbiter = Arbiter::new(scheduler(Algorithm::Rr, 1, flow_spec()), config).unwrap();
    let (hub, running) = (arbiter.hub(), arbiter.spawn(|| {}).unwrap());
    let mut client = hub.join().unwrap();
    let mut offers = (0..).map(|tag| {
        if tag == 40 {
            resume_unwind(Box::new("on purpose"));
        }
        Offer { flow: 0, length_bytes: 100, tag }
    });
    let sent = catch_unwind(AssertUnwindSafe(|| client.send_batch(&mut offers)));
    assert!(sent.is_err());
    let Counts { sent, sent_bytes, .. } = client.counts();
    assert_eq!((sent, sent_bytes), (40, 4_000), "packets read from the iterator were sent");

    let mut sink = PanickingSink { at_tag: 5, tags: Vec::new() };
    let deadline = Instant::now() + TIMEOUT;
    let mut panics = 0;
    while client.in_flight_count() > 0 {
        // One by one after the panic: then the rest of a run is not processed at once.
        let packets_max = if panics == 0 { 100 } else { 1 };
        let polled =
            catch_unwind(AssertUnwindSafe(|| client.poll(packets_max, &mut sink, &mut ())));
        panics += u32::from(polled.is_err());
        assert_eq!(client.counts().transmitted, sink.tags.len() as u64);
        assert!(Instant::now() < deadline, "{client:?}");
    }
    assert_eq!(panics, 1);
    assert!(sink.tags.into_iter().eq(0..40), "each once and in order");
    drop(client);
    hub.stop(StopMode::Drain);
    let closed = running.join();
    assert_conserved(&closed);
    assert_eq!(closed.total_ledger().counts.transmitted, 40);
}

#[test]
fn packets_survive_panics_of_the_offer_iterator_and_the_sink() {
    for stamping in [Stamping::None, Stamping::Batch, Stamping::Packet] {
        check_packets_survive_panics(stamping);
    }
}

#[test]
fn packet_is_sent_if_the_offer_iterator_panics_behind_it() {
    for stamping in [Stamping::None, Stamping::Packet] {
        let (hub, running) = start(scheduler(Algorithm::Rr, 1, flow_spec()), config(stamping));
        let mut client = hub.join().unwrap();
        let first = Offer { flow: 0, length_bytes: 100, tag: 7 };
        let panicking = || -> Option<Offer> { resume_unwind(Box::new("on purpose")) };
        let mut offers = std::iter::once(first).chain(std::iter::from_fn(panicking));
        let sent = catch_unwind(AssertUnwindSafe(|| client.send_batch(&mut offers)));
        assert!(sent.is_err());
        let Counts { sent, sent_bytes, .. } = client.counts();
        assert_eq!((sent, sent_bytes), (1, 100));
        let mut sink = InOrder::default();
        let deadline = Instant::now() + TIMEOUT;
        while client.in_flight_count() > 0 && Instant::now() < deadline {
            client.poll(100, &mut sink, &mut ()).unwrap();
        }
        assert_eq!((sink.packets, sink.last[&0]), (1, 7));
        drop(client);
        hub.stop(StopMode::Drain);
        assert_conserved(&running.join());
    }
}

#[test]
fn packets_of_panicking_clients_are_counted_and_other_clients_continue() {
    // 12 ms a packet, 1.4 s for all: most packets of the dying clients are still queued, even if
    // this thread gets the CPU late.
    let slow = config(Stamping::Batch).bandwidth_bps(Some(1_000_000));
    let (hub, running) = start(scheduler(Algorithm::Qfq, 4, flow_spec()), slow);
    let mut dying: Vec<_> = (0..3).map(|_| hub.join().unwrap()).collect();
    for (flow, client) in (0..).zip(&mut dying) {
        let mut offers = (0..40).map(|tag| Offer { flow, length_bytes: 1500, tag });
        assert_eq!(client.send_batch(&mut offers).sent, 40);
    }
    let panicking = dying.pop().unwrap();
    let thread = std::thread::Builder::new().name("dies on purpose".to_owned());
    let died = thread.spawn(move || {
        let _client = panicking;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(died.unwrap().join().is_err());
    drop(dying);

    let mut survivor = hub.join().unwrap();
    let sink = send_all(&mut survivor, ClientFlows::new(3, 4, 4), 20);
    assert_eq!(sink.packets, 20);
    drop(survivor);
    hub.stop(StopMode::Drain);
    let closed = running.join();
    assert_conserved(&closed);
    let ledgers = closed.client_ledgers();
    assert_eq!(ledgers.len(), 4);
    for ledger in &ledgers[..3] {
        assert!(ledger.has_left);
        assert_eq!((ledger.counts.sent, ledger.queued_count()), (40, 0));
        assert_eq!(ledger.abandoned_count(), 40 - ledger.counts.dropped);
        assert!(ledger.discarded + ledger.unread > 0);
    }
    assert_eq!(closed.total_ledger().scheduled_count(), 0);
}

#[test]
fn clients_join_and_leave_while_others_send() {
    let (hub, running) =
        start(scheduler(Algorithm::Wf2qPlus, 8, flow_spec()), config(Stamping::None));
    let rounds = 20;
    std::thread::scope(|scope| {
        for index in 0..4 {
            let hub = hub.clone();
            scope.spawn(move || {
                for round in 0..rounds {
                    let mut client = hub.join().unwrap();
                    send_all(&mut client, ClientFlows::new(index, 4, 8), 200);
                    if round % 2 == 0 {
                        let flow = index;
                        let _ = client.send(Offer { flow, length_bytes: 64, tag: 0 });
                    }
                }
            });
        }
    });
    hub.stop(StopMode::Drain);
    let closed = running.join();
    assert_conserved(&closed);
    let ledgers = closed.client_ledgers();
    assert_eq!(ledgers.len(), 4 * rounds);
    assert!(ledgers.iter().map(|ledger| ledger.client).eq(0..4 * rounds));
    assert_eq!(hub.join().err(), Some(JoinError::Stopped));
}

#[test]
fn more_clients_than_cpus_transmit_all_packets() {
    let (hub, running) = start(scheduler(Algorithm::Rr, 22, flow_spec()), config(Stamping::Batch));
    std::thread::scope(|scope| {
        for index in 0..22 {
            let mut client = hub.join().unwrap();
            scope.spawn(move || send_all(&mut client, ClientFlows::new(index, 22, 22), 2_000));
        }
    });
    hub.stop(StopMode::Drain);
    let closed = running.join();
    assert_conserved(&closed);
    assert_eq!(closed.total_ledger().counts.sent, 44_000);
}

#[test]
fn immediate_stop_leaves_queued_packets_in_the_scheduler_and_counts_them() {
    let slow = config(Stamping::Packet).bandwidth_bps(Some(1_000));
    let (hub, running) = start(scheduler(Algorithm::Fifo, 1, flow_spec()), slow);
    let mut client = hub.join().unwrap();
    let mut offers = (0..100).map(|tag| Offer { flow: 0, length_bytes: 1500, tag });
    assert_eq!(client.send_batch(&mut offers).sent, 100);
    let deadline = Instant::now() + TIMEOUT;
    while client.counts().dropped == 0 && Instant::now() < deadline {
        client.poll(100, &mut NullSink, &mut ()).unwrap();
    }
    hub.stop(StopMode::Now);
    let closed = running.join();
    while client.poll(100, &mut NullSink, &mut ()).unwrap() > 0 {}
    let counts = client.counts();
    assert!(client.is_arbiter_finished() && counts.queued_count() >= 49, "{counts:?}");
    assert_eq!(counts.sent, counts.transmitted + counts.dropped + counts.queued_count());
    let unread = counts.sent - closed.total_ledger().read;
    assert_eq!(counts.queued_count(), closed.scheduler.len() as u64 + unread);
    let late = Offer { flow: 0, length_bytes: 64, tag: 1 };
    assert_eq!(client.send(late), Err(SendError::Closed(late)));
    assert_eq!(client.send_batch(&mut [late].into_iter()).sent, 0);
    drop(client);
    assert_conserved(&closed);
    assert_eq!(closed.client_ledgers()[0].queued_count(), counts.queued_count());
}

#[test]
fn total_ledger_is_the_sum_over_clients_that_have_left_that_polled_and_that_never_did() {
    // Flows 1 and 2 take 12 s a packet.
    let mut paced = scheduler(Algorithm::Pacing, 1, flow_spec());
    for flow in 1..=2 {
        assert_eq!(paced.add_flow(flow_spec().weight(1_000)), Ok(flow));
    }
    let (hub, running) = start(paced, config(Stamping::None));
    let [mut leaves, mut polled, mut never_polled] = [(); 3].map(|()| hub.join().unwrap());
    let offers = |flow, count| (0..count).map(move |tag| Offer { flow, length_bytes: 1500, tag });
    assert_eq!(never_polled.send_batch(&mut offers(2, 3)).sent, 3);
    assert_eq!(polled.send_batch(&mut offers(1, 10)).sent, 10);
    let deadline = Instant::now() + TIMEOUT;
    while polled.poll(100, &mut NullSink, &mut ()).unwrap() == 0 {
        assert!(Instant::now() < deadline, "{polled:?}");
        std::thread::yield_now();
    }
    // When these are back, the arbiter has read all mailboxes since the other clients sent.
    send_all(&mut leaves, ClientFlows::new(0, 1, 1), 5);
    drop(leaves);
    hub.stop(StopMode::Now);
    let closed = running.join();
    let ledgers = closed.client_ledgers();
    let ended = |ledger: &Ledger| (ledger.queued_count(), ledger.abandoned_count());
    assert_eq!([0, 1, 2].map(|client| ended(&ledgers[client])), [(0, 0), (9, 0), (3, 0)]);
    assert_eq!(ended(&closed.total_ledger()), (12, 0));
    let counts = ledgers[2].counts;
    assert_eq!((counts.sent, counts.sent_bytes), (3, 0), "it has not published its bytes");
    drop(polled);
    assert_eq!(ended(&closed.total_ledger()), (12, 0), "it left after the arbiter had finished");
    assert_conserved(&closed);
}

#[test]
fn send_to_a_full_mailbox_or_of_an_invalid_packet_returns_the_packet() {
    let arbiter =
        Arbiter::new(scheduler(Algorithm::Fifo, 1, flow_spec()), config(Stamping::None)).unwrap();
    let mut client = arbiter.hub().join().unwrap(); // the arbiter does not run
    let fine = Offer { flow: 0, length_bytes: 64, tag: 3 };
    assert_eq!((0..).take_while(|_| client.send(fine).is_ok()).count(), 200);
    assert_eq!(client.send(fine), Err(SendError::Full(fine)));
    let empty = Offer { length_bytes: 0, ..fine };
    assert_eq!(client.send(empty), Err(SendError::OutOfRange(empty)));
    assert_eq!(client.send(empty).unwrap_err().into_inner(), empty);
    drop(arbiter);
    assert!(client.is_arbiter_finished());
    assert_eq!(client.send(fine), Err(SendError::Closed(fine)));
    assert_eq!(client.in_flight_count(), 200);
}

#[test]
fn packets_that_do_not_fit_into_the_mailbox_stay_in_the_iterator() {
    let arbiter =
        Arbiter::new(scheduler(Algorithm::Fifo, 1, flow_spec()), config(Stamping::None)).unwrap();
    let mut client = arbiter.hub().join().unwrap(); // the arbiter does not run
    let fine = Offer { flow: 0, length_bytes: 64, tag: 3 };
    for (offered, sent) in [(0, 0), (1, 1), (2, 2), (196, 196), (3, 1), (1, 0)] {
        let mut offers = std::iter::repeat_n(fine, offered);
        let batch = client.send_batch(&mut offers);
        assert_eq!((batch.sent, batch.out_of_range), (sent, None), "{offered} offered");
        assert_eq!(offers.len(), offered - sent);
    }
    assert_eq!((client.counts().sent, client.counts().sent_bytes), (200, 200 * 64));
}

#[test]
fn batch_ends_at_an_invalid_packet_and_returns_it() {
    let (hub, running) = start(scheduler(Algorithm::Fifo, 1, flow_spec()), config(Stamping::None));
    let mut client = hub.join().unwrap();
    let fine = Offer { flow: 0, length_bytes: 64, tag: 3 };
    let out_of_range = Offer { flow: 1 << 20, ..fine };
    let mut offers = [fine, fine, out_of_range, fine].into_iter();
    let batch = client.send_batch(&mut offers);
    assert_eq!((batch.sent, batch.out_of_range, offers.len()), (2, Some(out_of_range), 1));
    let mut offers = [fine, out_of_range, fine].into_iter();
    let batch = client.send_batch(&mut offers);
    assert_eq!((batch.sent, batch.out_of_range, offers.len()), (1, Some(out_of_range), 1));
    let mut offers = [out_of_range, fine].into_iter();
    let batch = client.send_batch(&mut offers);
    assert_eq!((batch.sent, batch.out_of_range, offers.len()), (0, Some(out_of_range), 1));
    assert_eq!((client.counts().sent, client.counts().sent_bytes), (3, 3 * 64));
    drop(client);
    hub.stop(StopMode::Now);
    running.join();
}

#[test]
fn stamps_ascend_by_stage_and_belong_to_one_packet() {
    for stamping in [Stamping::Batch, Stamping::Packet] {
        let (hub, running) = start(scheduler(Algorithm::QfqPlus, 3, flow_spec()), config(stamping));
        let mut client = hub.join().unwrap();
        let mut records = Vec::new();
        let stop = AtomicBool::new(false);
        let spec = LoadSection {
            duration: Duration::from_millis(5),
            bandwidth_bps: 1_000_000_000,
            length_bytes: 1250,
            burst_packets: 4,
        };
        let job = ClientRun {
            load: Load::from_sections(&[spec]),
            flows: ClientFlows::new(0, 1, 3),
            has_window_per_flow: false,
            flow_lengths_bytes: &[],
            in_flight_max: u64::MAX,
            poll_interval: Duration::from_micros(5),
            idle_policy: IdlePolicy::Share,
            stop: &stop,
            duration_max: None,
            linger: TIMEOUT,
        };
        let counts = run_client(&mut client, job, &mut NullSink, &mut records).unwrap();
        assert!(counts.sent > 0 && counts.queued_count() == 0, "{counts:?}");
        drop(client);
        for record in &records {
            let Record { cli_enq_ticks, sch_enq_ticks, sch_deq_ticks, cli_deq_ticks, .. } = *record;
            assert!(cli_enq_ticks > 0 && cli_deq_ticks >= cli_enq_ticks, "{record:?}");
            assert!(sch_deq_ticks >= sch_enq_ticks, "{record:?}");
            assert_eq!(record.length_bytes, 1250);
        }
        assert_eq!(records.len() as u64, counts.sent);
        hub.stop(StopMode::Drain);
        assert_conserved(&running.join());
    }
}

#[test]
fn stopped_client_returns_complete_counts() {
    let (hub, running) = start(scheduler(Algorithm::Rr, 4, flow_spec()), config(Stamping::None));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|index| {
                let (mut client, stop) = (hub.join().unwrap(), &stop);
                scope.spawn(move || {
                    let job = ClientRun {
                        load: Load::endless(1500, 10),
                        flows: ClientFlows::new(index, 3, 4),
                        has_window_per_flow: true,
                        flow_lengths_bytes: &[64],
                        in_flight_max: 10,
                        poll_interval: Duration::from_micros(5),
                        idle_policy: IdlePolicy::Share,
                        stop,
                        duration_max: None,
                        linger: TIMEOUT,
                    };
                    let mut shares = FlowCounter::new(4);
                    let counts = run_client(&mut client, job, &mut shares, &mut ()).unwrap();
                    let packets = shares.flows().iter().map(|flow| flow.packets).sum::<u64>();
                    assert_eq!(packets, counts.transmitted);
                    assert!(counts.queued_count() <= 10, "{counts:?}");
                    let first = shares.flows()[0];
                    assert_eq!(first.bytes, first.packets * 64, "flow 0 has a length of its own");
                    for (flow, share) in (0..).zip(shares.flows()) {
                        assert!(flow % 3 == index || share.packets == 0, "{flow} is not mine");
                    }
                    counts
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            let counts = worker.join().unwrap();
            assert_eq!(counts.sent, counts.transmitted + counts.dropped + counts.queued_count());
        }
    });
    hub.stop(StopMode::Now);
    assert_conserved(&running.join());
}

#[test]
fn client_without_flows_or_with_an_empty_program_ends_at_once() {
    let (hub, running) = start(scheduler(Algorithm::Fifo, 1, flow_spec()), config(Stamping::None));
    let stop = AtomicBool::new(false);
    for (load, flows) in [
        (Load::endless(64, 1), ClientFlows::new(1, 2, 1)),
        (Load::from_sections(&[]), ClientFlows::new(0, 1, 1)),
    ] {
        let mut client = hub.join().unwrap();
        let job = ClientRun {
            load,
            flows,
            has_window_per_flow: true,
            flow_lengths_bytes: &[],
            in_flight_max: u64::MAX,
            poll_interval: Duration::ZERO,
            idle_policy: IdlePolicy::Share,
            stop: &stop,
            duration_max: None,
            linger: TIMEOUT,
        };
        assert_eq!(
            run_client(&mut client, job, &mut NullSink, &mut ()).unwrap(),
            Counts::default()
        );
    }
    hub.stop(StopMode::Drain);
    running.join();
}

#[test]
fn run_with_a_packet_out_of_range_fails_at_that_packet() {
    let (hub, running) = start(scheduler(Algorithm::Fifo, 2, flow_spec()), config(Stamping::None));
    let stop = AtomicBool::new(false);
    let unlimited = LoadSection {
        duration: Duration::from_nanos(1),
        bandwidth_bps: 0,
        length_bytes: 70_000,
        burst_packets: 1,
    };
    for (load, flow_lengths_bytes, sent, flow, length_bytes) in [
        (Load::endless(0, 1), &[][..], 0, 0, 0),
        (Load::from_sections(&[unlimited]), &[], 0, 0, 70_000),
        (Load::endless(64, 1), &[70_000, 70_000], 0, 0, 70_000),
        (Load::endless(64, 2), &[64, 70_000], 1, 1, 70_000),
    ] {
        let mut client = hub.join().unwrap();
        let job = ClientRun {
            load,
            flows: ClientFlows::new(0, 1, 2),
            has_window_per_flow: true,
            flow_lengths_bytes,
            in_flight_max: 10,
            poll_interval: Duration::ZERO,
            idle_policy: IdlePolicy::Share,
            stop: &stop,
            duration_max: Some(TIMEOUT),
            linger: TIMEOUT,
        };
        let error = run_client(&mut client, job, &mut NullSink, &mut ()).unwrap_err();
        let offer = Offer { flow, length_bytes, tag: 0 };
        assert!(matches!(error, RunError::OutOfRange(refused) if refused == offer), "{error}");
        let message = format!("cannot send the load: {}", SendError::OutOfRange(offer));
        assert_eq!(error.to_string(), message);
        assert_eq!(client.counts().sent, sent);
    }
    hub.stop(StopMode::Drain);
    running.join();
}

#[test]
fn arbiter_with_a_long_interval_marks_all_packets() {
    let seldom = config(Stamping::Batch).interval(Duration::from_millis(2));
    let (hub, running) = start(scheduler(Algorithm::Rr1, 2, flow_spec()), seldom);
    let mut client = hub.join().unwrap();
    send_all(&mut client, ClientFlows::new(0, 1, 2), 500);
    drop(client);
    hub.stop(StopMode::Drain);
    assert_conserved(&running.join());
}

#[test]
fn full_mailbox_is_emptied_in_one_interval_with_any_batch_size() {
    // From a batch of eight on, packets are read in runs. Smaller batches of a single client share
    // a run.
    for batch_max in [1, 3, 5, 8] {
        let hour = Duration::from_secs(3600);
        let config = config(Stamping::None).interval(hour).batch_max(batch_max);
        let arbiter = Arbiter::new(scheduler(Algorithm::Rr, 2, flow_spec()), config).unwrap();
        let hub = arbiter.hub();
        let mut client = hub.join().unwrap();
        for tag in 0..60 {
            client.send(Offer { flow: tag % 2, length_bytes: 64, tag }).unwrap();
        }
        let running = arbiter.spawn(|| {}).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while client.in_flight_count() > 0 && Instant::now() < deadline {
            client.poll(100, &mut NullSink, &mut ()).unwrap();
            std::thread::yield_now();
        }
        assert_eq!(client.counts().transmitted, 60, "in batches of {batch_max}");
        drop(client);
        hub.stop(StopMode::Drain);
        assert_conserved(&running.join());
    }
}

#[test]
fn all_slots_are_free_during_the_interval_after_less_than_a_batch_was_read() {
    for batch_max in [2, 5] {
        let config = config(Stamping::None)
            .mailbox_slots_count(40)
            .interval(Duration::from_secs(3600))
            .batch_max(batch_max);
        let arbiter = Arbiter::new(scheduler(Algorithm::Fifo, 1, flow_spec()), config).unwrap();
        let hub = arbiter.hub();
        let mut client = hub.join().unwrap();
        let fine = Offer { flow: 0, length_bytes: 64, tag: 3 };
        assert_eq!(client.send_batch(&mut std::iter::repeat_n(fine, 3)).sent, 3);
        let running = arbiter.spawn(|| {}).unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while client.in_flight_count() > 0 && Instant::now() < deadline {
            client.poll(100, &mut NullSink, &mut ()).unwrap();
            std::thread::yield_now();
        }
        let batch = client.send_batch(&mut std::iter::repeat_n(fine, 50));
        assert_eq!(batch.sent, 40, "in batches of {batch_max}");
        drop(client);
        hub.stop(StopMode::Now);
        assert_conserved(&running.join());
    }
}

#[test]
fn scheduler_has_one_batch_at_a_time_although_a_single_client_has_more() {
    for (batch_max, tags) in [(1, [0, 1, 2, 3, 4, 5, 6, 7]), (2, [1, 0, 3, 2, 5, 4, 7, 6])] {
        let config = config(Stamping::None).batch_max(batch_max);
        let mut scheduler = scheduler(Algorithm::Prio, 1, flow_spec());
        assert_eq!(scheduler.add_flow(flow_spec().weight(2)), Ok(1));
        let arbiter = Arbiter::new(scheduler, config).unwrap();
        let hub = arbiter.hub();
        let mut client = hub.join().unwrap();
        for tag in 0..8 {
            // Flow 0, which goes first, has the second packet of each two.
            client.send(Offer { flow: 1 - tag % 2, length_bytes: 64, tag }).unwrap();
        }
        let too_long = Offer { flow: 0, length_bytes: 1501, tag: 8 };
        client.send(too_long).unwrap();
        let running = arbiter.spawn(|| {}).unwrap();
        let mut sink = PanickingSink { at_tag: u32::MAX, tags: Vec::new() };
        let deadline = Instant::now() + TIMEOUT;
        while client.in_flight_count() > 0 && Instant::now() < deadline {
            client.poll(100, &mut sink, &mut ()).unwrap();
            std::thread::yield_now();
        }
        assert_eq!(sink.tags, tags, "in batches of {batch_max}");
        assert_eq!(client.counts().dropped, 1);
        drop(client);
        hub.stop(StopMode::Drain);
        assert_conserved(&running.join());
    }
}

#[test]
fn arbiter_stops_during_a_long_interval() {
    let hour = config(Stamping::None).interval(Duration::from_secs(3600));
    let (hub, running) = start(scheduler(Algorithm::Fifo, 1, flow_spec()), hour);
    std::thread::sleep(Duration::from_millis(5));
    let began = Instant::now();
    hub.stop(StopMode::Now);
    running.join();
    assert!(began.elapsed() < TIMEOUT);
}

#[test]
fn client_that_never_polls_delays_no_other_client() {
    let (hub, running) = start(scheduler(Algorithm::Rr, 2, flow_spec()), config(Stamping::None));
    let mut idle = hub.join().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    // Until neither the lane back nor the scheduler has room: the client is held back for good.
    let (mut last, mut since) = (0, Instant::now());
    while since.elapsed() < Duration::from_millis(100) && Instant::now() < deadline {
        let _ = idle.send(Offer { flow: 0, length_bytes: 64, tag: 0 });
        if idle.counts().sent > last {
            (last, since) = (idle.counts().sent, Instant::now());
        }
    }
    let mut busy = hub.join().unwrap();
    send_all(&mut busy, ClientFlows::new(1, 2, 2), 5_000);
    while idle.in_flight_count() > 0 {
        idle.poll(100, &mut NullSink, &mut ()).unwrap();
        assert!(Instant::now() < deadline);
    }
    drop((idle, busy));
    hub.stop(StopMode::Drain);
    assert_conserved(&running.join());
}

#[test]
fn drain_waits_a_limited_time_for_a_client_that_never_polls_and_counts_its_marks() {
    let flow = flow_spec().packets_max(5_000);
    let (hub, running) = start(scheduler(Algorithm::Rr, 1, flow), config(Stamping::None));
    let (mut stubborn, mut other) = (hub.join().unwrap(), hub.join().unwrap());
    // As many packets as the lane back has slots, and some more.
    let (told, more) = (u64::from(stubborn.return_slots_count()), 100);
    let deadline = Instant::now() + TIMEOUT;
    while stubborn.counts().sent < told + more {
        let left = (told + more - stubborn.counts().sent) as usize;
        let offer = Offer { flow: 0, length_bytes: 100, tag: 0 };
        let _ = stubborn.send_batch(&mut std::iter::repeat_n(offer, left));
        assert!(Instant::now() < deadline, "{stubborn:?}");
        std::thread::yield_now();
    }
    send_all(&mut other, ClientFlows::new(0, 1, 1), 1_000);
    hub.stop(StopMode::Drain);
    let closed = running.join();
    while stubborn.poll(1_000, &mut NullSink, &mut ()).unwrap() > 0 {}
    assert_eq!(stubborn.counts().transmitted, told);
    drop((stubborn, other));
    let [stubborn, other] = closed.client_ledgers()[..] else { panic!("{closed:?}") };
    assert_eq!((other.unfetched, other.counts.transmitted), (0, 1_000));
    assert_eq!(stubborn.unfetched, stubborn.released - told);
    assert_eq!(stubborn.counts.sent, told + more);
    assert_conserved(&closed);
}

#[test]
fn drain_returns_a_packet_sent_before_the_stop_to_a_mailbox_already_read() {
    /// Scheduler whose first `dequeue` waits twice at a barrier.
    struct PausingScheduler(AnyScheduler<Token>, Option<Arc<Barrier>>);
    impl Scheduler<Token> for PausingScheduler {
        fn add_flow(&mut self, spec: FlowSpec) -> Result<u32, FlowError> {
            self.0.add_flow(spec)
        }
        fn flows_count(&self) -> u32 {
            self.0.flows_count()
        }
        fn enqueue(&mut self, now_ns: u64, packet: Packet<Token>) -> EnqueueResult<Token> {
            self.0.enqueue(now_ns, packet)
        }
        fn dequeue(&mut self, now_ns: u64) -> Option<Packet<Token>> {
            if let Some(barrier) = self.1.take() {
                barrier.wait();
                barrier.wait();
            }
            self.0.dequeue(now_ns)
        }
        fn ready_ns(&self) -> Option<u64> {
            self.0.ready_ns()
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn totals(&self) -> Totals {
            self.0.totals()
        }
    }
    for (stamping, batch_max) in [(Stamping::None, 1), (Stamping::None, 32), (Stamping::Packet, 32)]
    {
        let barrier = Arc::new(Barrier::new(2));
        let fifo = scheduler(Algorithm::Fifo, 1, flow_spec());
        let pausing = PausingScheduler(fifo, Some(Arc::clone(&barrier)));
        let arbiter = Arbiter::new(pausing, config(stamping).batch_max(batch_max)).unwrap();
        let hub = arbiter.hub();
        let mut client = hub.join().unwrap();
        let running = arbiter.spawn(|| {}).unwrap();
        barrier.wait(); // the arbiter has read the empty mailbox
        client.send(Offer { flow: 0, length_bytes: 64, tag: 0 }).unwrap();
        hub.stop(StopMode::Drain);
        barrier.wait();
        let closed = running.join();
        client.poll(100, &mut NullSink, &mut ()).unwrap();
        assert_eq!(client.counts().transmitted, 1, "{stamping:?}, in batches of {batch_max}");
        assert_eq!(client.in_flight_count(), 0);
        drop(client);
        assert_conserved(&closed);
    }
}

#[test]
fn panic_of_the_algorithm_ends_the_arbiter_and_not_the_clients() {
    struct PanickingScheduler;
    impl Scheduler<Token> for PanickingScheduler {
        fn add_flow(&mut self, _: FlowSpec) -> Result<u32, FlowError> {
            Ok(0)
        }
        fn flows_count(&self) -> u32 {
            1
        }
        fn enqueue(&mut self, _: u64, _: Packet<Token>) -> EnqueueResult<Token> {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        fn dequeue(&mut self, _: u64) -> Option<Packet<Token>> {
            None
        }
        fn ready_ns(&self) -> Option<u64> {
            None
        }
        fn len(&self) -> usize {
            0
        }
        fn totals(&self) -> Totals {
            Totals::default()
        }
    }
    let arbiter = Arbiter::new(PanickingScheduler, config(Stamping::None)).unwrap();
    let (hub, running) = (arbiter.hub(), arbiter.spawn(|| {}).unwrap());
    let mut client = hub.join().unwrap();
    client.send(Offer { flow: 0, length_bytes: 64, tag: 0 }).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while !client.is_arbiter_finished() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| running.join()));
    assert!(panic.is_err());
    assert!(hub.is_stopping() && client.counts().queued_count() == 1);
}

#[test]
fn invalid_configurations_are_refused_with_the_range() {
    let refuse = |config: ArbiterConfig| config.validate().unwrap_err();
    let fine = ArbiterConfig::default();
    assert_eq!(fine.validate(), Ok(()));
    let none = refuse(fine.clone().mailbox_slots_count(0));
    assert_eq!(none, ArbiterConfigError::Mailbox { slots_count: 0 });
    let batch = refuse(fine.clone().batch_max(0));
    assert!(batch.to_string().contains("1..=4096"), "{batch}");
    let rate = refuse(fine.clone().bandwidth_bps(Some(0)));
    assert!(matches!(rate, ArbiterConfigError::Rate(_)), "{rate}");
    let long = refuse(fine.clone().interval(Duration::from_secs(3601)));
    assert!(matches!(long, ArbiterConfigError::Interval { .. }), "{long}");
}
