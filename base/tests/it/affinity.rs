//! Pinning. Each test runs in a thread of its own, so that its binding ends with it.

use handover_base::affinity::{self, PinError};
use handover_base::topology::allowed_cpus;

#[test]
fn pinned_thread_runs_on_its_cpu() {
    for cpu in allowed_cpus() {
        affinity::pin(cpu).unwrap();
        assert_eq!(affinity::current_cpu(), cpu);
        assert_eq!(affinity::thread_cpus(), [cpu]);
        assert!(affinity::is_bound_to_one_cpu());
    }
}

#[test]
fn mask_can_be_narrowed_and_restored() {
    let before = affinity::thread_cpus();
    affinity::set_thread_cpus(&before[..1]).unwrap();
    assert_eq!(affinity::thread_cpus(), before[..1]);
    affinity::set_thread_cpus(&before).unwrap();
    assert_eq!(affinity::thread_cpus(), before);
    assert_eq!(affinity::is_bound_to_one_cpu(), before.len() == 1);
}

#[test]
fn pinning_affects_only_the_calling_thread() {
    let before = affinity::thread_cpus();
    let cpu = before[0];
    std::thread::spawn(move || affinity::pin(cpu).unwrap()).join().unwrap();
    assert_eq!(affinity::thread_cpus(), before);
}

#[test]
fn absent_cpu_is_refused_with_the_allowed_cpus() {
    // A number that any kernel could have, and one beyond the bits of any mask.
    for cpu in [1000, 4_000_000_000] {
        let before = affinity::thread_cpus();
        let error = affinity::pin(cpu).unwrap_err();
        let expected = PinError::NotAllowed { requested: vec![cpu], allowed: allowed_cpus() };
        assert_eq!(error, expected);
        let message = error.to_string();
        assert!(message.contains(&cpu.to_string()), "{message}");
        assert!(message.contains(&allowed_cpus()[0].to_string()), "{message}");
        assert_eq!(affinity::thread_cpus(), before, "a refusal changed the mask");
    }
}

#[test]
fn mask_ignores_forbidden_cpus_if_any_allowed_remains() {
    let cpu = allowed_cpus()[0];
    affinity::set_thread_cpus(&[cpu, 1000, 4_000_000_000]).unwrap();
    assert_eq!(affinity::thread_cpus(), [cpu]);
}

#[test]
fn empty_mask_is_refused() {
    assert_eq!(
        affinity::set_thread_cpus(&[]),
        Err(PinError::EmptyCpuList { allowed: allowed_cpus() })
    );
}
