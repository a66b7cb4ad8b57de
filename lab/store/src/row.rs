//! Description of a run.

/// Description of a run without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Id of the run.
    pub id: String,
    /// Start of the run, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// Measurement profile: smoke, quick or full.
    pub profile: String,
    /// Name of the host.
    pub host: String,
    /// Version of handover that measured the run.
    pub version: String,
    /// Command line of the run.
    pub command: String,
    /// Commit of the measured build.
    pub commit: String,
    /// Number of the run's records.
    pub records_count: u64,
    /// `true` if the run was completed.
    pub complete: bool,
    /// Names given to the run (its tags), in alphabetical order.
    pub tags: Vec<String>,
    /// Description of the damage of the run's row or names; `None` if they are sound. Other fields
    /// may then be wrong, and `command` may be empty. Damage of the records is found by
    /// [`load_run`](crate::Store::load_run) only.
    pub damage: Option<String>,
}
