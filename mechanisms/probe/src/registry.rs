//! Registry of sites and their states.

use crate::backend::Backend;
use crate::error::SwitchError;
use crate::pattern::matches;
use crate::raw::current::{self, InsideGuard};
use crate::raw::{flip, section};
use crate::site::{Meta, SITES_MAX, STATE_OFF, STATE_ON, Site};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `true` if sites are patched instructions in this build, `false` if they are flags.
const IS_PATCHED: bool =
    cfg!(all(target_arch = "x86_64", not(any(miri, handover_loom, feature = "flags"))));

#[derive(Debug, Default)]
struct Registry {
    sites: Vec<&'static Meta>,
    /// Addresses of the instructions of each site.
    places: Vec<Vec<usize>>,
    /// Patterns switched so far, for sites that register later.
    rules: Vec<(String, bool)>,
    backend: Option<Backend>,
    is_read: bool,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    sites: Vec::new(),
    places: Vec::new(),
    rules: Vec::new(),
    backend: None,
    is_read: false,
});

/// Locked registry, with a guard that keeps this thread's events from locking it again.
struct Locked {
    registry: MutexGuard<'static, Registry>,
    _inside: InsideGuard,
}

fn lock() -> Locked {
    let inside = current::enter();
    let mut registry = raw_lock();
    if !registry.is_read {
        registry.read_section();
    }
    Locked { registry, _inside: inside }
}

/// Locks the registry. A poisoned registry is still consistent: no code panics in the middle of a
/// change.
fn raw_lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lock held around a fork, so that the child finds the registry unlocked and consistent.
#[derive(Debug)]
pub(crate) struct RegistryLock(#[allow(dead_code)] MutexGuard<'static, Registry>);

pub(crate) fn lock_for_fork() -> RegistryLock {
    RegistryLock(raw_lock())
}

impl Registry {
    fn read_section(&mut self) {
        self.is_read = true;
        self.add_places(section::instructions());
    }

    fn add_places(&mut self, mut places: Vec<section::SiteInstruction>) {
        places.sort_unstable_by_key(|place| place.at);
        for place in places {
            let index = match place.meta.number() {
                0 => self.add(place.meta),
                number => number as usize - 1,
            };
            if let Some(index) = Some(index).filter(|index| *index < SITES_MAX as usize) {
                self.places[index].push(place.at);
                // Another process may have switched sites on before.
                if flip::is_on(place.at) == Some(true) {
                    place.meta.set_state(STATE_ON);
                }
            }
        }
    }

    /// Registers a site and returns its index. If all numbers are in use, the site stays off.
    fn add(&mut self, meta: &'static Meta) -> usize {
        self.sites.push(meta);
        self.places.push(Vec::new());
        if self.sites.len() <= SITES_MAX as usize {
            meta.set_number(self.sites.len() as u32);
        }
        meta.set_state(STATE_OFF);
        self.sites.len() - 1
    }

    fn switch(&mut self, pattern: &str, on: bool) -> Result<usize, SwitchError> {
        self.rules.retain(|(rule, _)| rule != pattern);
        self.rules.push((pattern.to_owned(), on));
        self.apply(pattern, on)
    }

    fn apply(&mut self, pattern: &str, on: bool) -> Result<usize, SwitchError> {
        let is_wanted = |(meta, _): &(&&'static Meta, _)| matches(pattern, meta.name());
        let wanted: Vec<(&&'static Meta, &Vec<usize>)> =
            self.sites.iter().zip(&self.places).filter(is_wanted).collect();
        let sites_count = wanted.len();
        let places: Vec<usize> = wanted.iter().flat_map(|(_, places)| *places).copied().collect();
        let mut answer = Ok(());
        if IS_PATCHED && !places.is_empty() {
            answer = flip::write(&places, on).map(|backend| self.backend = Some(backend));
        }
        for (meta, places) in wanted {
            let is_on = match &answer {
                Ok(()) => on && meta.number() != 0,
                Err(_) => places.iter().any(|at| flip::is_on(*at) == Some(true)),
            };
            meta.set_state(if is_on { STATE_ON } else { STATE_OFF });
        }
        answer.map_err(SwitchError::Refused)?;
        if sites_count > SITES_MAX as usize {
            return Err(SwitchError::TooMany { sites_count });
        }
        Ok(sites_count)
    }
}

/// Returns all registered probe sites: those compiled into this object, or without patched code
/// those that have run.
///
/// # Cost
/// A copy of all names.
#[must_use]
pub fn sites() -> Vec<Site> {
    lock().registry.sites.iter().map(|meta| meta.site()).collect()
}

/// Returns as [`sites`] does the sites from `index` on, without those that have no number.
pub(crate) fn sites_from(index: usize) -> Vec<Site> {
    let locked = lock();
    let sites = locked.registry.sites.get(index..).unwrap_or_default();
    sites.iter().map(|meta| meta.site()).filter(|site| site.number != 0).collect()
}

pub(crate) fn sites_count() -> usize {
    lock().registry.sites.len()
}

/// Switches on the sites whose names match `pattern` (see [`matches`](crate::matches)); returns how
/// many match. When it returns, every thread records their events.
///
/// In the flag form, sites that have not run yet are switched when they first run.
///
/// # Errors
/// If the process may not change its code; all sites then stay as they were. Also if more than
/// [`SITES_MAX`] sites match; those with a number are then on.
///
/// # Blocking
/// Waits for other switching, and for all CPUs that run this process to see the change: some 10 µs.
/// If the kernel has no `membarrier` for it, each CPU sees it by its next interrupt at the latest.
///
/// # Cost
/// About 1 µs for each place in the code.
pub fn enable(pattern: &str) -> Result<usize, SwitchError> {
    lock().registry.switch(pattern, true)
}

/// Switches off the sites whose names match `pattern`; returns how many match. A thread that is
/// executing one of them may still record its event.
///
/// # Errors
/// Like [`enable`].
pub fn disable(pattern: &str) -> Result<usize, SwitchError> {
    lock().registry.switch(pattern, false)
}

/// Returns the method by which sites were switched last; before the first time, the method that
/// will be tried first.
#[must_use]
pub fn backend() -> Backend {
    let _inside = current::enter();
    let tried = raw_lock().backend;
    tried.unwrap_or(if IS_PATCHED { Backend::ProcMem } else { Backend::Flag })
}

/// Registers the sites of another object, and switches them as the patterns so far demand. An error of switching leaves
/// them off.
#[cfg(all(target_arch = "x86_64", not(any(miri, handover_loom, feature = "flags"))))]
pub(crate) fn register_places(places: Vec<section::SiteInstruction>) {
    let mut locked = lock();
    let registry = &mut *locked.registry;
    registry.add_places(places);
    for (pattern, on) in registry.rules.clone() {
        // There is nobody to whom to return the error: the object is being loaded.
        let _ = registry.apply(&pattern, on);
    }
}

/// Registers a site without patched code, unless it is registered, and returns `true` if it is on.
/// The caller is not within this crate: this thread may not hold the registry.
pub(crate) fn register(meta: &'static Meta) -> bool {
    let mut locked = lock();
    let registry = &mut *locked.registry;
    if meta.number() == 0 {
        registry.add(meta);
        for (pattern, on) in &registry.rules {
            if matches(pattern, meta.name()) {
                meta.set_state(if *on && meta.number() != 0 { STATE_ON } else { STATE_OFF });
            }
        }
    }
    meta.state() == STATE_ON
}
