//! Pinning. Each test runs in a thread of its own, so that its binding ends with it.

use handover_base::affinity::{self, PinError};
use handover_base::topology::allowed;

#[test]
fn pinned_thread_runs_on_its_cpu() {
    for cpu in allowed() {
        affinity::pin(cpu).unwrap();
        assert_eq!(affinity::current_cpu(), cpu);
        assert_eq!(affinity::mask(), [cpu]);
        assert!(affinity::is_on_one_cpu());
    }
}

#[test]
fn mask_can_be_narrowed_and_restored() {
    let before = affinity::mask();
    affinity::set_mask(&before[..1]).unwrap();
    assert_eq!(affinity::mask(), before[..1]);
    affinity::set_mask(&before).unwrap();
    assert_eq!(affinity::mask(), before);
    assert_eq!(affinity::is_on_one_cpu(), before.len() == 1);
}

#[test]
fn pinning_affects_only_the_calling_thread() {
    let before = affinity::mask();
    let cpu = before[0];
    std::thread::spawn(move || affinity::pin(cpu).unwrap()).join().unwrap();
    assert_eq!(affinity::mask(), before);
}

#[test]
fn absent_cpu_is_refused_with_the_allowed_cpus() {
    // A number that any kernel could have, and one beyond the bits of any mask.
    for cpu in [1000, 4_000_000_000] {
        let before = affinity::mask();
        let error = affinity::pin(cpu).unwrap_err();
        let expected = PinError::NotAllowed { requested: vec![cpu], allowed: allowed() };
        assert_eq!(error, expected);
        let message = error.to_string();
        assert!(message.contains(&cpu.to_string()), "{message}");
        assert!(message.contains(&allowed()[0].to_string()), "{message}");
        assert_eq!(affinity::mask(), before, "a refusal changed the mask");
    }
}

#[test]
fn mask_ignores_forbidden_cpus_if_any_allowed_remains() {
    let cpu = allowed()[0];
    affinity::set_mask(&[cpu, 1000, 4_000_000_000]).unwrap();
    assert_eq!(affinity::mask(), [cpu]);
}

#[test]
fn empty_mask_is_refused() {
    assert_eq!(affinity::set_mask(&[]), Err(PinError::EmptyCpuList { allowed: allowed() }));
}
