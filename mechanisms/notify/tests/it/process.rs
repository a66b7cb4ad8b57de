//! Two processes with one mapped core: the test runs itself again as the partner.
//!
//! Not under Miri, which supports neither processes nor memfds.
#![cfg(not(any(handover_loom, miri)))]

use handover_base::futex::Scope;
use handover_notify::shared::MappedCore;
use handover_notify::{Config, MapError, Notify, Wait, adaptive};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Name of the variable that gives the partner the paths of the cores that it waits on and
/// notifies.
const PARTNER: &str = "HANDOVER_NOTIFY_PARTNER";
const ROUNDS_COUNT: u64 = 2_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn path(file: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

fn open(path: &str) -> File {
    File::options().read(true).write(true).open(path).expect("the other process's file")
}

/// Runs `test` of this file again in another process, with these `paths`.
fn run_partner(test: &str, paths: [String; 2]) -> std::process::Child {
    Command::new(std::env::current_exe().expect("this very file"))
        .args(["--exact", &format!("process::{test}")])
        .env(PARTNER, paths.join(" "))
        .stdout(Stdio::null())
        .spawn()
        .expect("a second process")
}

fn partner_paths() -> Option<[String; 2]> {
    let paths = std::env::var(PARTNER).ok()?;
    let (first, second) = paths.split_once(' ').expect("two paths");
    Some([first.to_owned(), second.to_owned()])
}

/// Notifies and waits in turn; begins with a notification if `starts` is `true`, otherwise with a
/// wait.
fn ping_pong(sender: &impl Notify, receiver: &mut impl Wait, starts: bool) {
    for round in 0..ROUNDS_COUNT {
        if starts {
            sender.notify();
        }
        assert_eq!(receiver.wait_timeout(PATIENCE), Some(1), "round {round}");
        if !starts {
            sender.notify();
        }
        if round % 100 == 0 {
            std::thread::sleep(Duration::from_micros(200)); // let the other side park
        }
    }
}

fn adaptive_ends(
    mine: MappedCore<adaptive::NotifyCore>,
    theirs: MappedCore<adaptive::NotifyCore>,
) -> (
    adaptive::Sender<MappedCore<adaptive::NotifyCore>>,
    adaptive::Receiver<MappedCore<adaptive::NotifyCore>>,
) {
    let receiver = adaptive::Receiver::from_core(mine, Scope::Shared, Config::default());
    (adaptive::Sender::from_core(theirs, Scope::Shared), receiver.expect("a valid configuration"))
}

#[test]
fn two_processes_hand_over_through_a_mapped_adaptive_core() {
    type NotifyCore = MappedCore<adaptive::NotifyCore>;
    if let Some([mine, theirs]) = partner_paths() {
        let core = |path: &str| NotifyCore::map(open(path)).expect("the core");
        let (sender, mut receiver) = adaptive_ends(core(&mine), core(&theirs));
        ping_pong(&sender, &mut receiver, false);
        return;
    }
    let (mine, my_file) = NotifyCore::create().expect("a memfd");
    let (theirs, their_file) = NotifyCore::create().expect("a memfd");
    let name = "two_processes_hand_over_through_a_mapped_adaptive_core";
    let mut partner = run_partner(name, [path(&their_file), path(&my_file)]);
    let (sender, mut receiver) = adaptive_ends(mine, theirs);
    ping_pong(&sender, &mut receiver, true);
    assert!(partner.wait().expect("its end").success());
    let stats = receiver.stats();
    assert_eq!(stats.found_pending + stats.by_spinning + stats.by_sleeping, ROUNDS_COUNT);
}

/// States of the word at the beginning of an adaptive core, as another process may write them.
const EMPTY: u32 = 0;
const PENDING: u32 = 1;
const SLEEPING: u32 = 2;
/// Maximum time until a receiver is notified: a hundred times the single sleep of a receiver.
const RECOVERY_MAX: Duration = Duration::from_secs(10);

/// Waits until the word says that the receiver sleeps.
fn await_sleeper(file: &File) {
    let asked = Instant::now();
    let mut word = [0; 4];
    while word != SLEEPING.to_ne_bytes() {
        assert!(asked.elapsed() < RECOVERY_MAX, "no sleeper: the word is {word:?}");
        std::thread::sleep(Duration::from_millis(1));
        file.read_exact_at(&mut word, 0).expect("the word");
    }
    std::thread::sleep(Duration::from_millis(10)); // lets the receiver enter the kernel
}

/// Lets `peer` write into the core of a sleeping receiver, then lets another sender notify, and
/// checks that the receiver wakes.
fn assert_notified_despite(peer: impl FnOnce(&File)) {
    let (core, file) = MappedCore::<adaptive::NotifyCore>::create().expect("a memfd");
    let file = File::from(file);
    let (mut receiver, sender) = {
        let receiver =
            adaptive::Receiver::from_core(core.clone(), Scope::Shared, Config::never_spin());
        (receiver.expect("valid"), adaptive::Sender::from_core(core, Scope::Shared))
    };
    let (result_sender, result_receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || result_sender.send(receiver.wait()));
    await_sleeper(&file);
    peer(&file);
    sender.notify();
    assert_eq!(result_receiver.recv_timeout(RECOVERY_MAX), Ok(1), "it sleeps on");
}

#[test]
fn sender_killed_before_its_wake_does_not_block_the_others() {
    // Only the killed sender's exchange remains. The next sender finds it pending, and wakes no
    // one.
    assert_notified_despite(|file| {
        file.write_all_at(&PENDING.to_ne_bytes(), 0).expect("the word");
    });
}

#[test]
fn sleeper_whose_word_a_peer_empties_is_notified_by_the_next_sender() {
    assert_notified_despite(|file| {
        file.write_all_at(&EMPTY.to_ne_bytes(), 0).expect("the word");
        await_sleeper(file);
    });
}

#[test]
fn mapping_outlives_its_file_and_is_shared_by_clones() {
    let (core, file) = MappedCore::<adaptive::NotifyCore>::create().expect("a memfd");
    let other = MappedCore::<adaptive::NotifyCore>::map(&file).expect("the same file");
    drop(file);
    let (sender, mut receiver) = adaptive_ends(core.clone(), other);
    sender.notify();
    assert_eq!(receiver.wait(), 1, "two mappings, one memory");
    drop((sender, receiver));
    adaptive::Sender::from_core(core, Scope::Shared).notify();
}

#[test]
fn unsealed_or_short_file_is_refused() {
    let ordinary = tempfile_without_seals();
    let refused = MappedCore::<adaptive::NotifyCore>::map(&ordinary);
    assert!(matches!(refused, Err(MapError::NotSealed)), "{refused:?}");

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    let empty = memfd_create("empty", MemfdFlags::ALLOW_SEALING).expect("a memfd");
    fcntl_add_seals(&empty, SealFlags::SHRINK).expect("sealed");
    let refused = MappedCore::<adaptive::NotifyCore>::map(&empty);
    assert!(
        matches!(refused, Err(MapError::TooSmall { bytes: 0, needed_bytes: 128 })),
        "{refused:?}"
    );

    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let Ok(huge) = memfd_create("huge", flags) else { return };
    fcntl_add_seals(&huge, SealFlags::SHRINK).expect("sealed");
    let refused = MappedCore::<adaptive::NotifyCore>::map(&huge);
    assert!(matches!(refused, Err(MapError::NotSmallPages)), "{refused:?}");
}

fn tempfile_without_seals() -> File {
    File::open(std::env::current_exe().expect("this very file")).expect("readable")
}
