//! Tests of the load on servers that answer correctly, and on servers that do not.

use handover_classic::load::hold::{HeldConnections, HoldOptions, OpenFailure};
use handover_classic::load::wire::MessageError;
use handover_classic::load::{Event, Fault, Load, LoadAmount, LoadPlan, LoadReport};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

/// Starts a server that handles each connection with `each` on its own thread.
fn serve(each: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || each(stream.unwrap()));
        }
    });
    address
}

fn echo(mut stream: TcpStream) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

/// Echoes, and applies `change` at the byte with index `at`.
fn echo_with_change(mut stream: TcpStream, at: usize, change: fn(&mut Vec<u8>, usize)) {
    let (mut bytes, mut seen) = (vec![0; 1 << 16], 0);
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        let mut answer = bytes[..count].to_vec();
        if (seen..seen + count).contains(&at) {
            change(&mut answer, at - seen);
        }
        seen += count;
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

fn counted(count: u64, iterations: u64, reconns: u64) -> LoadAmount {
    LoadAmount::Counted { count, iterations, reconns, pause: Duration::ZERO }
}

fn timed(ms: u64, rate: Option<f64>) -> LoadAmount {
    let warm_up = Duration::from_millis(ms / 4);
    LoadAmount::Timed { warm_up, duration: Duration::from_millis(ms), rate }
}

fn run_to_end(plan: &LoadPlan) -> LoadReport {
    Load::start(plan, None).unwrap().finish().unwrap()
}

#[test]
fn every_message_is_echoed_for_various_counts() {
    let address = serve(echo);
    for (work, depth, letters) in [
        (counted(1, 1, 1), u64::MAX, (3, 10)),
        (counted(1000, 3, 2), u64::MAX, (3, 10)),
        (counted(500, 2, 1), 7, (0, 0)),
        (counted(50, 1, 1), u64::MAX, (20_000, 100_000)),
    ] {
        let plan = LoadPlan {
            threads_count: 2,
            clients_count: 3,
            work,
            depth,
            letters_min: letters.0,
            letters_max: letters.1,
            linear_bucket: Some(Duration::from_micros(10)),
            ..LoadPlan::new(address)
        };
        let report = run_to_end(&plan);
        let total = plan.total_count().unwrap();
        assert_eq!((report.sent_count, report.received_count), (total, total), "{plan:?}");
        assert_eq!(
            (report.lost_count, report.faults_count, report.latencies.count()),
            (0, 0, total)
        );
        let linear = report.latencies.linear.unwrap();
        assert_eq!(linear.counts.iter().sum::<u64>(), total);
        assert!(report.latencies.corrected.is_empty() && report.elapsed_ns > 0);
    }
}

#[test]
fn changed_letter_id_or_length_is_a_fault() {
    // Messages of 1000 bytes each, of which the eleventh is damaged.
    let fault_of = |each: fn(TcpStream)| {
        let plan = LoadPlan {
            work: counted(1000, 1, 1),
            letters_min: 972,
            letters_max: 972,
            ..LoadPlan::new(serve(each))
        };
        let report = run_to_end(&plan);
        assert_eq!((report.received_count, report.lost_count), (10, 990));
        report.faults
    };
    let said = |error: MessageError| [error.to_string()];
    let length = fault_of(|stream| echo_with_change(stream, 10_003, |bytes, at| bytes[at] ^= 1));
    assert_eq!(length, said(MessageError::Length { found: 973, expected: 972 }));
    let id = fault_of(|stream| echo_with_change(stream, 10_019, |bytes, at| bytes[at] ^= 1));
    assert_eq!(id, said(MessageError::Id { found: 1, expected: 0 }));
    let letter = fault_of(|stream| echo_with_change(stream, 10_500, |bytes, at| bytes[at] ^= 1));
    assert_eq!(letter, said(MessageError::Letter { at: 472 }));
    // A missing byte moves all that follow.
    let missing =
        fault_of(|stream| echo_with_change(stream, 10_500, |bytes, at| drop(bytes.drain(at..=at))));
    assert_eq!(missing, said(MessageError::Letter { at: 472 }));
}

#[test]
fn closing_resetting_or_absent_server_is_a_fault_at_once() {
    let ends = |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 100]);
    };
    let plan = LoadPlan {
        threads_count: 2,
        clients_count: 2,
        work: counted(1000, 2, 50),
        // Longer than the test: no time-out occurs.
        timeout: Duration::from_secs(3600),
        ..LoadPlan::new(serve(ends))
    };
    let report = run_to_end(&plan);
    let total = plan.total_count().unwrap();
    assert_eq!((report.lost_count, report.received_count), (total, 0), "{:?}", report.faults);
    // Connections are not made fifty times if all have failed.
    assert_eq!(report.faults_count, 4);
    // A port at which no server listens.
    let gone = "127.0.0.1:1".parse().unwrap();
    let report = run_to_end(&LoadPlan { address: gone, ..plan });
    let refused = "connect 127.0.0.1:1: ";
    assert!(report.faults[0].starts_with(refused), "{:?}", report.faults);
}

#[test]
fn silent_server_is_a_fault_after_the_timeout() {
    let silent = |stream: TcpStream| {
        thread::sleep(Duration::from_secs(60));
        drop(stream);
    };
    let timeout = Duration::from_millis(200);
    let report = run_to_end(&LoadPlan { timeout, ..LoadPlan::new(serve(silent)) });
    assert_eq!(report.faults, [Fault::Silent(timeout).to_string()]);
    assert_eq!(report.lost_count, 1);
}

#[test]
fn closed_loop_ends_in_time_without_outstanding_messages() {
    let address = serve(echo);
    let run = |ms| {
        let plan = LoadPlan {
            clients_count: 4,
            work: timed(ms, None),
            depth: 3,
            ..LoadPlan::new(address)
        };
        (ms, run_to_end(&plan))
    };
    // The threads may get no CPU within the measured time: then it is longer.
    let mut runs = [200, 2000, 20_000].into_iter().map(run);
    let measured = runs.find(|(_, report)| report.latencies.count() > 0);
    let (ms, report) = measured.expect("messages within 20 s");
    assert_eq!((report.lost_count, report.faults_count), (0, 0), "{:?}", report.faults);
    assert_eq!(report.sent_count, report.received_count);
    // Messages sent before and after are not measured.
    assert!(report.latencies.count() < report.received_count);
    assert_eq!(report.elapsed_ns, ms * 1_000_000);
    // The distribution over connections.
    let shares = report.shares;
    assert_eq!((shares.connections_count, shares.messages_count > 0), (4, true));
    let (slowest, fastest) = shares.slowest_and_fastest().unwrap();
    assert!(slowest <= 1.0 && fastest >= 1.0, "{shares:?}");
}

#[test]
fn open_loop_sends_due_messages_and_measures_from_due_time() {
    let plan = LoadPlan {
        threads_count: 2,
        clients_count: 3,
        work: timed(400, Some(2000.0)),
        ..LoadPlan::new(serve(echo))
    };
    let report = run_to_end(&plan);
    // 500 ms at 2,000 per second, of which 400 ms are measured.
    let latencies = &report.latencies;
    assert!((790..=810).contains(&latencies.corrected.len()), "{:?}", report.faults);
    assert!(
        (990..=1010).contains(&(report.sent_count + report.unsent_count)),
        "{:?}",
        report.faults
    );
    // On a busy machine the last messages may be due and not be sent in time: they count as late,
    // with no time of sending.
    let sent_count = latencies.corrected.len() - report.unsent_count;
    assert_eq!((report.lost_count, latencies.raw.len()), (0, sent_count));
    assert!(latencies.corrected.max() >= latencies.raw.min());
}

#[test]
fn threads_of_an_open_loop_measure_the_same_time() {
    // Only three of the threads have a message that is due within the measured time.
    let duration = Duration::from_millis(300);
    let work = LoadAmount::Timed { warm_up: Duration::ZERO, duration, rate: Some(10.0) };
    let report = run_to_end(&LoadPlan { threads_count: 20, work, ..LoadPlan::new(serve(echo)) });
    assert_eq!(report.latencies.corrected.len(), 3, "{:?}", report.faults);
    assert_eq!(report.elapsed_ns, duration.as_nanos() as u64);
}

#[test]
fn load_without_connections_ends_its_measured_time() {
    let ends = |mut stream: TcpStream| {
        let _ = stream.read(&mut [0; 100]);
    };
    for rate in [None, Some(1000.0)] {
        let duration = Duration::from_secs(3600);
        let work = LoadAmount::Timed { warm_up: Duration::ZERO, duration, rate };
        let began = Instant::now();
        let report = run_to_end(&LoadPlan { threads_count: 2, work, ..LoadPlan::new(serve(ends)) });
        assert_eq!((report.faults_count, report.is_stopped), (2, false));
        assert!(u128::from(report.elapsed_ns) <= began.elapsed().as_nanos(), "{rate:?}");
    }
}

#[test]
fn server_pause_delays_all_messages_due_in_it() {
    // The server sleeps once, for 200 ms: a closed loop with one message sees that once in a
    // thousand messages.
    let naps = |mut stream: TcpStream| {
        let (mut bytes, mut reads) = ([0; 4096], 0);
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            reads += 1;
            if reads == 100 {
                thread::sleep(Duration::from_millis(200));
            }
            if stream.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    };
    let work = LoadAmount::Timed {
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(1000),
        rate: Some(1000.0),
    };
    let report = run_to_end(&LoadPlan { work, depth: 1, ..LoadPlan::new(serve(naps)) });
    let slow = |it: &hdrhistogram::Histogram<u64>| it.len() - it.count_between(0, 50_000_000);
    let (raw, corrected) = (slow(&report.latencies.raw), slow(&report.latencies.corrected));
    // Delays of a busy machine are slow in both.
    assert!(corrected >= raw + 100, "{corrected} are slow, and {raw} from their sending on");
}

#[test]
fn stopped_load_keeps_its_measurements() {
    let load =
        Load::start(&LoadPlan { work: timed(60_000, None), ..LoadPlan::new(serve(echo)) }, None)
            .unwrap();
    assert_eq!(load.wait_for_event(Duration::from_secs(60)), Some(Event::Connected { count: 1 }));
    while load.progress().received_count == 0 {
        thread::yield_now();
    }
    assert_eq!(load.progress().open_count, 1);
    load.stop();
    let report = load.finish().unwrap();
    assert!(report.is_stopped && report.received_count > 0 && report.faults_count == 0);
}

#[test]
fn many_connections_are_held_and_sampled() {
    let address = serve(echo);
    let (stop, opened) = (AtomicBool::new(false), AtomicU64::new(0));
    let timeout = Duration::from_secs(10);
    let wanted = HoldOptions { address, count: 60, first: 9_970, timeout, encryption: None };
    let mut held = HeldConnections::open(&wanted, &stop, &opened).unwrap();
    assert_eq!((held.open_count(), &held.failure, opened.into_inner()), (60, &None, 60));
    assert_eq!(held.count_closed(), Ok(0));
    // Held a second time: the first ports are in use, and others are found.
    let (stop, opened) = (AtomicBool::new(false), AtomicU64::new(0));
    let others = HeldConnections::open(&wanted, &stop, &opened).unwrap();
    assert_eq!((others.open_count(), &others.failure), (60, &None));
    for (count, echoes) in [(20, 20), (1000, 60)] {
        let mut echoes_count = 0;
        held.sample(count, timeout, &mut |_ns| echoes_count += 1).unwrap();
        assert_eq!(echoes_count, echoes);
    }
    assert_eq!(held.count_closed(), Ok(0));
}

#[test]
fn rejected_connections_are_not_counted_as_open() {
    let address = serve(drop);
    let (stop, opened) = (AtomicBool::new(false), AtomicU64::new(0));
    let timeout = Duration::from_secs(10);
    let wanted = HoldOptions { address, count: 1000, first: 0, timeout, encryption: None };
    let mut held = HeldConnections::open(&wanted, &stop, &opened).unwrap();
    let until = Instant::now() + Duration::from_secs(100);
    while held.open_count() > 0 && Instant::now() < until {
        held.count_closed().unwrap();
    }
    assert_eq!((held.open_count(), held.failure), (0, Some(OpenFailure::ClosedByServer)));
}
