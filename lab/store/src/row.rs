//! Description of a run.

/// Description of a run without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    /// Id of the run.
    pub id: String,
    /// Beginning of the run, in nanoseconds since the Unix epoch.
    pub started_unix_ns: i64,
    /// Profile: smoke, quick or full.
    pub profile: String,
    /// Name of the host.
    pub host: String,
    /// Version of handover.
    pub version: String,
    /// Commit that it was built from.
    pub commit: String,
    /// Number of records.
    pub records_count: u64,
    /// `true` if the run was completed.
    pub complete: bool,
    /// Names of the run, in alphabetical order.
    pub tags: Vec<String>,
}
