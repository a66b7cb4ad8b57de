//! Sites: their names, and their states. Under Miri too, where sites are flags and no file can be
//! mapped.
#![cfg(not(handover_loom))]
#![deny(unsafe_code)] // as in a crate that uses probes: the macros allow their own `unsafe`

use handover_probe::{
    SiteKind, backend, disable, enable, probe, probe_and_return, probed, sites, span,
    unrecorded_events_count,
};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Excludes the other tests, as sites belong to the process.
fn exclusive() -> MutexGuard<'static, ()> {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    disable("*").unwrap();
    exclusive
}

/// Counts the events that `run` makes, by the counter of events without a recording.
fn events(run: impl FnOnce()) -> u64 {
    let before = unrecorded_events_count();
    run();
    unrecorded_events_count() - before
}

#[test]
fn disabled_site_evaluates_no_argument() {
    let _alone = exclusive();
    let asked = Cell::new(0);
    let value = || {
        asked.set(asked.get() + 1);
        7u8
    };
    let pass = || {
        probe!("sites.plain");
        probe!("sites.one", value());
        probe!("sites.two", value(), -1i64);
    };
    pass();
    assert_eq!(asked.get(), 0);
    assert!(enable("sites.*").unwrap() >= 3);
    assert_eq!(events(pass), 3);
    assert_eq!(asked.get(), 2);
    disable("sites.two").unwrap();
    assert_eq!(events(pass), 2);
    disable("sites.*").unwrap();
    assert_eq!(events(pass), 0);
}

#[test]
fn site_that_returns_does_so_only_while_it_is_on() {
    let _alone = exclusive();
    fn halve(number: u64) -> (u64, bool) {
        probe_and_return!("returns.halved", |record| halve_recorded(number, record));
        (number / 2, false)
    }
    fn halve_recorded(number: u64, record: impl FnOnce(u64)) -> (u64, bool) {
        record(number);
        (number / 2, true)
    }
    assert_eq!(halve(6), (3, false)); // in the flag form, this registers the site
    assert_eq!(enable("returns.*").unwrap(), 1);
    assert_eq!(events(|| assert_eq!(halve(8), (4, true))), 1);
    disable("returns.*").unwrap();
    assert_eq!(events(|| assert_eq!(halve(8), (4, false))), 0);
}

#[test]
fn span_records_its_end_on_every_exit_path() {
    let _alone = exclusive();
    fn early(leave: bool) -> u32 {
        let _span = span!("ways.span", 1u8, leave);
        if leave {
            return 1;
        }
        2
    }
    early(false); // in the flag form, this registers the site
    enable("ways.*").unwrap();
    assert_eq!(events(|| assert_eq!(early(true), 1)), 2);
    assert_eq!(events(|| assert_eq!(early(false), 2)), 2);
    let unwound = events(|| {
        let caught = std::panic::catch_unwind(|| {
            let _span = span!("ways.unwound", 3);
            std::panic::resume_unwind(Box::new("out"));
        });
        assert!(caught.is_err());
    });
    assert_eq!(unwound, 2);
    disable("*").unwrap();
}

struct Counter(u32);

impl Counter {
    #[probed]
    fn add(&mut self, more: u32) -> u32 {
        self.0 += more;
        self.0
    }

    #[probed("fn.named")]
    fn generic<T>(&mut self, more: T) -> u32
    where
        T: Into<u32>,
    {
        self.add(more.into())
    }
}

#[test]
fn generic_probed_function_is_one_site() {
    let _alone = exclusive();
    let mut counter = Counter(0);
    let mut pass = || {
        counter.generic(1u8);
        counter.generic(1u16);
        counter.add(1)
    };
    assert_eq!(pass(), 3);
    assert_eq!(enable("*::add,fn.named").unwrap(), 2);
    assert_eq!(events(|| assert_eq!(pass(), 6)), 10);
    disable("*").unwrap();
}

#[test]
fn site_lists_its_kind_and_source_position() {
    let _alone = exclusive();
    let line = line!() + 1;
    probe!("where.mark", 1);
    drop(span!("where.span"));
    let sites = sites();
    let site = |name: &str| sites.iter().find(|site| site.name == name).unwrap();
    let mark = site("where.mark");
    assert_eq!((mark.line, mark.kind, mark.values_count), (line, SiteKind::Mark, 1));
    assert!(mark.file.ends_with("sites.rs"), "{}", mark.file);
    assert!(!mark.is_on && mark.number != 0 && mark.number != site("where.span").number);
    assert_eq!(site("where.span").kind, SiteKind::Span);
    enable("where.mark").unwrap();
    assert!(handover_probe::sites().iter().any(|site| site.name == "where.mark" && site.is_on));
    disable("*").unwrap();
}

#[test]
fn macros_accept_constant_names_and_shadow_no_user_items() {
    let _alone = exclusive();
    const NAME: &str = concat!("const.", "name");
    const META: u64 = 5;
    struct Span;
    let pass = || {
        probe!(NAME, META);
        let _span = span!("const.span", META);
        let _other = Span;
    };
    pass();
    enable("const.*").unwrap();
    assert_eq!(events(pass), 3);
    disable("*").unwrap();
}

#[test]
fn unmatched_pattern_switches_no_site() {
    let _alone = exclusive();
    assert_eq!(enable("no such site").unwrap(), 0);
    assert_eq!(enable("").unwrap(), 0);
}

#[test]
fn backend_reports_the_method_in_use() {
    let _alone = exclusive();
    probe!("backend.site");
    enable("backend.*").unwrap();
    disable("backend.*").unwrap();
    let text = backend().to_string();
    let patched = cfg!(all(
        any(target_arch = "aarch64", target_arch = "x86_64"),
        not(any(miri, feature = "flags"))
    ));
    assert_eq!(text.starts_with("code"), patched, "{text}");
}
