//! The names of all sites of several traces, each with a number.

use crate::traces::Traces;
use handover_probe::read::ReadAt;
use handover_probe::{SITES_MAX, Site, matches};
use std::collections::HashMap;

/// A name's number in its [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub(crate) u32);

impl NameId {
    /// As an index, below [`Names::count`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names, without duplicates: sites of several traces, and several places of one program, may share one.
#[derive(Debug, Clone)]
pub struct Names {
    texts: Vec<String>,
    is_chosen: Vec<bool>,
    /// By trace and site.
    of: Vec<Vec<NameId>>,
}

/// What sites are called that the trace does not name: the stretch with their names is damaged.
const UNNAMED: &str = "(unnamed)";

impl Names {
    /// Of all sites.
    #[must_use]
    pub fn all<S: ReadAt>(traces: &Traces<S>) -> Self {
        Self::chosen(traces, |_| true)
    }

    /// Of all sites; [`walk`](crate::walk) passes over those that do not match, as if they had not
    /// been switched on.
    #[must_use]
    pub fn matching<S: ReadAt>(traces: &Traces<S>, pattern: &str) -> Self {
        Self::chosen(traces, |name| matches(pattern, name))
    }

    fn chosen<S: ReadAt>(traces: &Traces<S>, is_chosen: impl Fn(&str) -> bool) -> Self {
        let mut names = Self {
            texts: vec![UNNAMED.to_owned()],
            is_chosen: vec![is_chosen(UNNAMED)],
            of: Vec::new(),
        };
        let mut known: HashMap<String, NameId> = HashMap::new();
        for trace in traces.all() {
            let mut of = Vec::new();
            // No event has a larger number: only a damaged trace names one.
            let is_known = |site: &&&Site| site.number <= SITES_MAX;
            for site in trace.sites().iter().filter(is_known) {
                let id = *known.entry(site.name.clone()).or_insert_with(|| {
                    names.is_chosen.push(is_chosen(&site.name));
                    names.texts.push(site.name.clone());
                    NameId(names.texts.len() as u32 - 1)
                });
                let at = site.number as usize;
                if of.len() <= at {
                    of.resize(at + 1, NameId(0));
                }
                of[at] = id;
            }
            names.of.push(of);
        }
        names
    }

    /// The name of a site.
    #[must_use]
    pub fn of(&self, trace: usize, site: u32) -> NameId {
        let of = self.of.get(trace);
        of.and_then(|of| of.get(site as usize)).copied().unwrap_or(NameId(0))
    }

    /// How it reads.
    #[must_use]
    pub fn text(&self, name: NameId) -> &str {
        &self.texts[name.index()]
    }

    /// Whether it was chosen.
    #[must_use]
    pub fn is_chosen(&self, name: NameId) -> bool {
        self.is_chosen[name.index()]
    }

    /// How many there are; the first is of sites that have none.
    #[must_use]
    pub fn count(&self) -> usize {
        self.texts.len()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &str)> {
        self.texts.iter().enumerate().map(|(index, text)| (NameId(index as u32), text.as_str()))
    }
}
