//! Waiting for descriptors.

use handover_fiber::{
    Config, Eventual, Runtime, Stealing, readable, readable_timeout, sleep, spawn, writable,
    writable_timeout, yield_now,
};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

type TestResult = Result<(), Box<dyn std::error::Error>>;

const SHORT_TIMEOUT: Duration = Duration::from_millis(5);
/// A time-out that no test reaches.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);

/// Creates a pair of connected sockets that do not block.
fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (near, far) = UnixStream::pair()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    Ok((near, far))
}

/// Writes until the buffers of the socket are full.
fn fill(mut socket: &UnixStream) {
    while socket.write(&[0; 4096]).is_ok() {}
}

/// Reads one byte; waits for it.
fn read_byte(mut socket: &UnixStream) -> io::Result<u8> {
    let mut byte = [0];
    loop {
        match socket.read_exact(&mut byte) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => readable(socket)?,
            read => return read.map(|()| byte[0]),
        }
    }
}

#[test]
fn waiting_fiber_leaves_its_worker_to_others_and_is_woken_by_a_thread() -> TestResult {
    let runtime = Runtime::new(Config::default())?; // one worker
    let (near, mut far) = pair()?;
    let reads = runtime.spawn(move || read_byte(&near))?;
    let sleeps = runtime.spawn(|| sleep(SHORT_TIMEOUT))?;
    sleeps.join()?;
    // The worker sleeps in its epoll set: the spawn interrupts it.
    std::thread::sleep(SHORT_TIMEOUT);
    assert_eq!(runtime.spawn(|| 1)?.join()?, 1);
    assert!(!reads.is_finished());
    std::thread::sleep(SHORT_TIMEOUT);
    far.write_all(&[7])?;
    assert_eq!(reads.join()??, 7);
    Ok(())
}

#[test]
fn timed_wait_ends_in_time_on_fibers_and_threads() -> TestResult {
    let run = || -> io::Result<()> {
        let (near, mut far) = pair()?;
        let begin = Instant::now();
        assert!(!readable_timeout(&near, SHORT_TIMEOUT)?);
        assert!(begin.elapsed() >= SHORT_TIMEOUT - Duration::from_micros(20), "clocks differ");
        assert!(writable_timeout(&near, LONG_TIMEOUT)? && writable_timeout(&near, Duration::ZERO)?);
        fill(&near);
        assert!(!writable_timeout(&near, SHORT_TIMEOUT)?);
        far.write_all(&[1])?;
        assert!(readable_timeout(&near, LONG_TIMEOUT)?);
        drop(far);
        writable(&near)?; // the other end is closed
        readable(&near)
    };
    run()?;
    Ok(Runtime::new(Config::default())?.spawn(run)?.join()??)
}

#[test]
fn fibers_wait_for_both_directions_of_one_descriptor() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let (near, mut far) = pair()?;
    let near = Arc::new(near);
    fill(&near);
    let wait = |reads: bool| {
        let near = Arc::clone(&near);
        runtime.spawn(move || if reads { readable(&*near) } else { writable(&*near) })
    };
    let (first, second, writes) = (wait(true)?, wait(true)?, wait(false)?);
    std::thread::sleep(SHORT_TIMEOUT);
    assert!(!first.is_finished() && !second.is_finished() && !writes.is_finished());
    far.write_all(&[1])?;
    first.join()??;
    second.join()??;
    assert!(!writes.is_finished());
    while far.read(&mut [0; 4096]).is_ok() {} // until it would block
    writes.join()??;
    Ok(())
}

#[test]
fn busy_worker_finds_ready_descriptors() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let (near, mut far) = pair()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let busy = runtime.spawn(move || {
        while !is_over.load(Relaxed) {
            yield_now();
        }
    })?;
    let reads = runtime.spawn(move || read_byte(&near))?;
    far.write_all(&[3])?;
    assert_eq!(reads.join()??, 3);
    ends.store(true, Relaxed);
    busy.join()?;
    Ok(())
}

#[test]
fn wait_for_a_regular_file_is_an_error() -> TestResult {
    let runtime = Runtime::new(Config::default())?;
    let file = std::fs::File::open(std::env::current_exe()?)?;
    let error = runtime.spawn(move || readable(&file))?.join()?.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    // The failed wait has left nothing behind.
    let (near, far) = pair()?;
    drop(far);
    runtime.spawn(move || readable(&near))?.join()??;
    Ok(())
}

#[test]
fn bytes_pass_between_fibers_of_stealing_workers_and_threads() -> TestResult {
    const SOCKETS_COUNT: u8 = 20;
    let rounds = if std::env::var_os("HANDOVER_LONG").is_some() { 10_000 } else { 200 };
    let runtime = Runtime::new(Config::workers(2).stealing(Stealing::UnstartedFibers))?;
    let begins = Arc::new(Eventual::new());
    let mut joins = Vec::new();
    for number in 0..SOCKETS_COUNT {
        let (near, far) = pair()?;
        let echo = move || -> io::Result<()> {
            loop {
                match read_byte(&far) {
                    Ok(byte) => (&far).write_all(&[byte])?,
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        };
        let begins = Arc::clone(&begins);
        let ask = move || -> io::Result<()> {
            begins.wait();
            for round in 0..rounds {
                let byte = number.wrapping_add(round as u8);
                (&near).write_all(&[byte])?;
                if round % 7 == 0 {
                    // Given up, or not.
                    readable_timeout(&near, Duration::from_micros(u64::from(byte)))?;
                }
                assert_eq!(read_byte(&near)?, byte);
            }
            Ok(())
        };
        if number % 4 == 0 {
            std::thread::spawn(move || echo().unwrap());
        } else {
            runtime.spawn_detached(move || echo().unwrap())?;
        }
        joins.push(runtime.spawn(move || spawn(ask).unwrap().join().unwrap())?);
    }
    begins.set(())?;
    for join in joins {
        join.join()??;
    }
    Ok(())
}
