//! Names of the sites of several traces, each with an id.

use crate::traces::Traces;
use handover_probe::read::ReadAt;
use handover_probe::{SITES_MAX, Site, matches};
use std::collections::HashMap;

/// Id of a name in its [`SiteNames`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub(crate) u32);

impl NameId {
    /// Converts the id to an index below [`SiteNames::count`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names of the sites in all traces. Several sites may share a name.
#[derive(Debug, Clone)]
pub struct SiteNames {
    /// Text of each name, by id.
    texts: Vec<String>,
    /// `true` for each name that is selected, by id.
    is_selected: Vec<bool>,
    /// Id of each site's name, by trace and site number.
    by_site: Vec<Vec<NameId>>,
}

/// Name of sites for which the trace file has no name.
const UNNAMED_SITE: &str = "(unnamed)";

impl SiteNames {
    /// Collects the names of all sites, and selects all names.
    #[must_use]
    pub fn with_all_selected<S: ReadAt>(traces: &Traces<S>) -> Self {
        Self::collect(traces, |_| true)
    }

    /// Collects the names of all sites, and selects the names that match `pattern`.
    /// [`walk`](crate::walk) ignores the others, as if they had not been enabled.
    #[must_use]
    pub fn with_matching_selected<S: ReadAt>(traces: &Traces<S>, pattern: &str) -> Self {
        Self::collect(traces, |name| matches(pattern, name))
    }

    /// Collects the names of all sites, and selects the names for which `is_selected` is `true`.
    fn collect<S: ReadAt>(traces: &Traces<S>, is_selected: impl Fn(&str) -> bool) -> Self {
        let mut names = Self {
            texts: vec![UNNAMED_SITE.to_owned()],
            is_selected: vec![is_selected(UNNAMED_SITE)],
            by_site: Vec::new(),
        };
        let mut known: HashMap<String, NameId> = HashMap::new();
        for trace in traces.as_slice() {
            let mut ids = Vec::new();
            // No event has a larger site number: only a damaged trace contains one.
            let is_known = |site: &&&Site| site.number <= SITES_MAX;
            for site in trace.sites().iter().filter(is_known) {
                let id = *known.entry(site.name.clone()).or_insert_with(|| {
                    names.is_selected.push(is_selected(&site.name));
                    names.texts.push(site.name.clone());
                    NameId(names.texts.len() as u32 - 1)
                });
                let at = site.number as usize;
                if ids.len() <= at {
                    ids.resize(at + 1, NameId(0));
                }
                ids[at] = id;
            }
            names.by_site.push(ids);
        }
        names
    }

    /// Returns the id of a site's name. It is the id of `(unnamed)` if the trace has no name for
    /// the site.
    #[must_use]
    pub fn id_of_site(&self, trace: usize, site: u32) -> NameId {
        let ids = self.by_site.get(trace);
        ids.and_then(|ids| ids.get(site as usize)).copied().unwrap_or(NameId(0))
    }

    /// Returns the text of a name.
    #[must_use]
    pub fn text_of(&self, name: NameId) -> &str {
        &self.texts[name.index()]
    }

    /// Returns `true` if the name is selected. A [`walk`](crate::walk) ignores other names.
    #[must_use]
    pub fn is_selected(&self, name: NameId) -> bool {
        self.is_selected[name.index()]
    }

    /// Returns the number of names, including the first one, `(unnamed)`.
    #[must_use]
    pub fn count(&self) -> usize {
        self.texts.len()
    }

    /// Iterates over all names.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &str)> {
        self.texts.iter().enumerate().map(|(index, text)| (NameId(index as u32), text.as_str()))
    }
}
