//! Registry of sites and their states.

use crate::backend::Backend;
use crate::error::SwitchError;
use crate::pattern::matches;
use crate::raw::code::IS_MPROTECT_FIRST;
use crate::raw::current::{self, InsideGuard};
use crate::raw::{section, switching};
use crate::site::{SITES_MAX, STATE_OFF, STATE_ON, Site, SiteData};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `true` if sites in this build are switched by changing code, `false` if by flags.
const IS_PATCHED: bool = cfg!(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    not(any(miri, handover_loom, feature = "flags"))
));

/// Registered probe sites, and the patterns by which they were switched.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    sites: Vec<&'static SiteData>,
    /// Instructions of each site, in the order of `sites`.
    instructions: Vec<Vec<switching::Instruction>>,
    /// Patterns that were switched on (`true`) or off, in order. They apply also to sites that
    /// register later.
    switched_patterns: Vec<(String, bool)>,
    /// Method by which sites were last switched; `None` before the first switch.
    backend: Option<Backend>,
    /// `true` once the sites of this object's section are registered.
    is_section_read: bool,
}

/// Registry of the sites in this process.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    sites: Vec::new(),
    instructions: Vec::new(),
    switched_patterns: Vec::new(),
    backend: None,
    is_section_read: false,
});

/// Guard of the locked registry. While it exists, events of this thread do not lock the registry
/// again.
struct LockedRegistry {
    registry: MutexGuard<'static, Registry>,
    _inside: InsideGuard,
}

/// Locks the registry. At the first call, registers the sites of this object.
fn lock() -> LockedRegistry {
    let inside = current::enter_crate();
    let mut registry = lock_registry_only();
    if !registry.is_section_read {
        registry.read_section();
    }
    LockedRegistry { registry, _inside: inside }
}

/// Locks the registry without registering sites. A poisoned registry is still consistent: no code
/// panics in the middle of a change. Held during a fork, the lock keeps it consistent in the child.
pub(crate) fn lock_registry_only() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Registers the sites in this object's section.
    fn read_section(&mut self) {
        self.is_section_read = true;
        self.add_instructions(section::site_instructions());
    }

    /// Adds instructions to their sites; registers the sites if necessary.
    fn add_instructions(&mut self, mut instructions: Vec<section::SiteInstruction>) {
        instructions.sort_unstable_by_key(|one| one.instruction.at);
        for section::SiteInstruction { instruction, meta } in instructions {
            let index = match meta.number() {
                0 => self.add(meta),
                number => number as usize - 1,
            };
            if let Some(index) = Some(index).filter(|index| *index < SITES_MAX as usize) {
                self.instructions[index].push(instruction);
                // Another process may have switched sites on before.
                if instruction.is_on() == Some(true) {
                    meta.set_state(STATE_ON);
                }
            }
        }
    }

    /// Registers a site and returns its index. If all site numbers are in use, the site stays off.
    fn add(&mut self, meta: &'static SiteData) -> usize {
        self.sites.push(meta);
        self.instructions.push(Vec::new());
        if self.sites.len() <= SITES_MAX as usize {
            meta.set_number(self.sites.len() as u32);
        }
        meta.set_state(STATE_OFF);
        self.sites.len() - 1
    }

    /// Switches the sites whose names match `pattern`, including sites that register later. Returns
    /// the number of registered sites that match.
    fn switch(&mut self, pattern: &str, on: bool) -> Result<usize, SwitchError> {
        self.switched_patterns.retain(|(switched, _)| switched != pattern);
        self.switched_patterns.push((pattern.to_owned(), on));
        self.switch_registered(pattern, on)
    }

    /// Switches the registered sites whose names match `pattern`, and returns their number.
    fn switch_registered(&mut self, pattern: &str, on: bool) -> Result<usize, SwitchError> {
        let is_wanted = |(meta, _): &(&&'static SiteData, _)| matches(pattern, meta.name());
        let wanted: Vec<(&&'static SiteData, &Vec<switching::Instruction>)> =
            self.sites.iter().zip(&self.instructions).filter(is_wanted).collect();
        let sites_count = wanted.len();
        let all: Vec<switching::Instruction> =
            wanted.iter().flat_map(|(_, instructions)| *instructions).copied().collect();
        let mut answer = Ok(());
        if IS_PATCHED && !all.is_empty() {
            answer = switching::switch_sites(&all, on).map(|backend| self.backend = Some(backend));
        }
        for (meta, instructions) in wanted {
            let is_on = match &answer {
                Ok(()) => on && meta.number() != 0,
                Err(_) => instructions.iter().any(|one| one.is_on() == Some(true)),
            };
            meta.set_state(if is_on { STATE_ON } else { STATE_OFF });
        }
        answer.map_err(SwitchError::Refused)?;
        if sites_count > SITES_MAX as usize {
            return Err(SwitchError::TooManySites { sites_count });
        }
        Ok(sites_count)
    }
}

/// Returns all registered probe sites. With patched code, these are all sites compiled into this
/// object; otherwise, the sites that have run.
///
/// # Cost
/// A copy of all names.
#[must_use]
pub fn sites() -> Vec<Site> {
    lock().registry.sites.iter().map(|meta| meta.site()).collect()
}

/// Returns the sites registered at `index` and later, except those without a number.
pub(crate) fn sites_from(index: usize) -> Vec<Site> {
    let locked = lock();
    let sites = locked.registry.sites.get(index..).unwrap_or_default();
    sites.iter().map(|meta| meta.site()).filter(|site| site.number != 0).collect()
}

/// Returns the number of registered sites.
pub(crate) fn sites_count() -> usize {
    lock().registry.sites.len()
}

/// Switches on the sites whose names match `pattern`, and returns their number. Patterns are those
/// of [`matches`](crate::matches). Every thread then records the events of these sites.
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
/// About 1 µs for each instruction in the code.
pub fn enable(pattern: &str) -> Result<usize, SwitchError> {
    lock().registry.switch(pattern, true)
}

/// Switches off the sites whose names match `pattern`, and returns their number. A thread that is
/// executing such a site may still record its event.
///
/// # Errors
/// Like [`enable`].
pub fn disable(pattern: &str) -> Result<usize, SwitchError> {
    lock().registry.switch(pattern, false)
}

/// Returns the method that last switched sites on or off. Before the first switch, returns the
/// method that will be tried first.
#[must_use]
pub fn backend() -> Backend {
    let _inside = current::enter_crate();
    let tried = lock_registry_only().backend;
    tried.unwrap_or(match (IS_PATCHED, IS_MPROTECT_FIRST) {
        (true, true) => Backend::Mprotect,
        (true, false) => Backend::ProcMem,
        (false, _) => Backend::Flag,
    })
}

/// Registers the sites of another object, and switches them by the earlier patterns. An error of
/// switching leaves them off.
#[cfg(all(
    any(target_arch = "aarch64", target_arch = "x86_64"),
    not(any(miri, handover_loom, feature = "flags"))
))]
pub(crate) fn register_instructions(instructions: Vec<section::SiteInstruction>) {
    let mut locked = lock();
    let registry = &mut *locked.registry;
    registry.add_instructions(instructions);
    for (pattern, on) in registry.switched_patterns.clone() {
        // There is nobody to whom to return the error: the object is being loaded.
        let _ = registry.switch_registered(&pattern, on);
    }
}

/// Registers a site that is switched by a flag, unless it is registered. Returns `true` if the site
/// is on. This thread must not hold the registry's lock.
pub(crate) fn register(meta: &'static SiteData) -> bool {
    let mut locked = lock();
    let registry = &mut *locked.registry;
    if meta.number() == 0 {
        registry.add(meta);
        for (pattern, on) in &registry.switched_patterns {
            if matches(pattern, meta.name()) {
                meta.set_state(if *on && meta.number() != 0 { STATE_ON } else { STATE_OFF });
            }
        }
    }
    meta.state() == STATE_ON
}
