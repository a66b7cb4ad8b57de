//! Rank of this process in a job, from the environment that its launcher has set.

use handover_program::exit::to_usage_error;
#[cfg(feature = "mpi")]
use handover_suite::mpi::Mpi;
use std::fs;

/// Rank of a process in a job.
#[derive(Debug, PartialEq)]
pub struct Rank {
    /// Number of this rank, from 0.
    pub number: u32,
    /// Number of ranks in the job.
    pub ranks_count: u32,
    /// Number of ranks on this host, if the launcher sets it.
    pub ranks_on_host_count: Option<u32>,
    /// Name of the job, the same on all hosts, if the launcher sets one.
    pub job: Option<String>,
    /// Environment variable or option that gave the number of this rank.
    variable: &'static str,
}

/// Names of the environment variables that a launcher sets. Of several alternatives, the first that
/// is set counts.
struct Launcher {
    rank_variable: &'static str,
    ranks_count_variables: &'static [&'static str],
    ranks_on_host_variables: &'static [&'static str],
    hosts_count_variables: &'static [&'static str],
    /// Alternatives for the job's name: lists of variables whose values are joined.
    job_variables: &'static [&'static [&'static str]],
}

/// Known launchers, in the order in which their variables are looked up. The order matters: mpiexec
/// may run within a Slurm job, and srun may use PMI.
const LAUNCHERS: &[Launcher] = &[
    // Open MPI
    Launcher {
        rank_variable: "OMPI_COMM_WORLD_RANK",
        ranks_count_variables: &["OMPI_COMM_WORLD_SIZE"],
        ranks_on_host_variables: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        hosts_count_variables: &[],
        job_variables: &[&["PMIX_NAMESPACE"], &["OMPI_MCA_ess_base_jobid"]],
    },
    // MPICH and its derivatives; srun --mpi=pmi2
    Launcher {
        rank_variable: "PMI_RANK",
        ranks_count_variables: &["PMI_SIZE"],
        ranks_on_host_variables: &["MPI_LOCALNRANKS"],
        hosts_count_variables: &[],
        job_variables: &[&["PMI_JOBID"], &["SLURM_JOB_ID", "SLURM_STEP_ID"]],
    },
    // srun --mpi=pmix
    Launcher {
        rank_variable: "PMIX_RANK",
        ranks_count_variables: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        ranks_on_host_variables: &[],
        hosts_count_variables: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"],
        job_variables: &[&["PMIX_NAMESPACE"], &["SLURM_JOB_ID", "SLURM_STEP_ID"]],
    },
    // srun
    Launcher {
        rank_variable: "SLURM_PROCID",
        ranks_count_variables: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        ranks_on_host_variables: &[],
        hosts_count_variables: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"],
        job_variables: &[&["SLURM_JOB_ID", "SLURM_STEP_ID"], &["SLURM_JOB_ID"]],
    },
];

/// Maximum length of a job's name, in characters. The rest is cut off.
const JOB_CHARACTERS_MAX: usize = 100;

impl Rank {
    /// Reads the rank from the environment variables of a launcher. Returns `None` if no known
    /// launcher has set them.
    ///
    /// # Errors
    /// If the variables do not give a rank.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Option<Rank>> {
        let is_set = |launcher: &&Launcher| variable(launcher.rank_variable).is_some();
        let Some(launcher) = LAUNCHERS.iter().find(is_set) else { return Ok(None) };
        let number = |name: &str| -> anyhow::Result<Option<u32>> {
            let Some(text) = variable(name) else { return Ok(None) };
            text.parse().map(Some).map_err(|_| {
                to_usage_error(format!("environment variable {name}={text}: not a number"))
            })
        };
        let first = |names: &[&str]| -> anyhow::Result<Option<u32>> {
            names.iter().find_map(|name| number(name).transpose()).transpose()
        };
        let rank = number(launcher.rank_variable)?.unwrap_or_default();
        let Some(ranks_count) = first(launcher.ranks_count_variables)? else {
            let (rank, counts) =
                (launcher.rank_variable, launcher.ranks_count_variables.join(" or "));
            return Err(to_usage_error(format!(
                "{rank} is set, but the number of ranks is unknown: set {counts}"
            )));
        };
        let hosts_count = first(launcher.hosts_count_variables)?;
        let alone_here = hosts_count.is_some_and(|hosts| hosts > 1 && hosts == ranks_count);
        let job = launcher.job_variables.iter().find_map(|parts| {
            let parts: Option<Vec<String>> = parts.iter().map(|part| variable(part)).collect();
            parts.map(|parts| file_name_part(&parts.join(".")))
        });
        Ok(Some(Rank {
            number: rank,
            ranks_count,
            ranks_on_host_count: first(launcher.ranks_on_host_variables)?
                .or(alone_here.then_some(1)),
            job,
            variable: launcher.rank_variable,
        }))
    }

    /// Returns the rank given by `--rank`, one of two ranks that meet at `--rendezvous`.
    pub fn from_option(number: u32) -> Rank {
        Rank { number, ranks_count: 2, ranks_on_host_count: None, job: None, variable: "--rank" }
    }

    /// Returns `true` if an MPI launcher has started this rank.
    #[cfg(feature = "mpi")]
    pub fn is_started_by_mpi(&self) -> bool {
        matches!(self.variable, "OMPI_COMM_WORLD_RANK" | "PMI_RANK")
    }

    /// Returns an error if `srun` has started this rank without setting up MPI. MPI libraries then
    /// end the process, or take it for the only rank.
    ///
    /// # Errors
    /// A usage error that names the option.
    pub fn require_mpi_launcher(&self) -> anyhow::Result<()> {
        if self.variable != "SLURM_PROCID" {
            return Ok(());
        }
        Err(to_usage_error(
            "srun has started this rank without MPI; add --mpi=pmi2 for MPICH, or --mpi=pmix for Open MPI (`srun \
             --mpi=list` shows what this Slurm has)",
        ))
    }

    /// Checks that MPI gives this process the same rank as the launcher's environment.
    ///
    /// # Errors
    /// If it does not, or if the library fails.
    #[cfg(feature = "mpi")]
    pub fn check_mpi(&self, world: &Mpi) -> anyhow::Result<()> {
        let (number, count) = world.rank_and_count()?;
        anyhow::ensure!(
            (number, count) == (self.number, self.ranks_count),
            "the launcher's environment says rank {} of {}, but {} says rank {number} of {count}",
            self.number,
            self.ranks_count,
            world.library_version()?,
        );
        Ok(())
    }

    /// Returns a name that no other job on this host has. All ranks of the job on this host get the
    /// same name.
    pub fn job_on_this_host(&self) -> String {
        self.job.clone().unwrap_or_else(|| launcher_id(self.variable))
    }
}

/// Maximum size of a text between two ranks, in bytes. A report with a long histogram has some
/// 100 kB.
#[cfg(feature = "mpi")]
const TEXT_BYTES_MAX: u64 = 1 << 28;

/// Sends a text to a rank by MPI: its length, then its bytes.
#[cfg(feature = "mpi")]
pub(crate) fn send_text(world: &Mpi, to_rank: u32, text: &str) -> anyhow::Result<()> {
    world.send(to_rank, &(text.len() as u64).to_le_bytes())?;
    Ok(world.send(to_rank, text.as_bytes())?)
}

/// Receives a text from a rank by MPI. Blocks until the rank has sent it.
#[cfg(feature = "mpi")]
pub(crate) fn receive_text(world: &Mpi, from_rank: u32) -> anyhow::Result<String> {
    use anyhow::Context as _;
    let mut length = [0; 8];
    world.receive(from_rank, &mut length)?;
    let length = u64::from_le_bytes(length);
    anyhow::ensure!(
        length <= TEXT_BYTES_MAX,
        "a message of rank {from_rank} has {length} bytes, more than {TEXT_BYTES_MAX}; do all ranks run the same \
         version?"
    );
    let mut bytes = vec![0; length as usize];
    world.receive(from_rank, &mut bytes)?;
    String::from_utf8(bytes).with_context(|| format!("a message of rank {from_rank} is not UTF-8"))
}

/// Returns `true` if a launcher sets this environment variable to a process's rank.
pub fn is_rank_variable(variable: &std::ffi::OsStr) -> bool {
    LAUNCHERS.iter().any(|launcher| variable == launcher.rank_variable)
}

/// Reduces a job's name to letters, digits and `.-_`, for use in a file name.
fn file_name_part(job: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    job.chars().filter(|c| plain(*c)).take(JOB_CHARACTERS_MAX).collect()
}

/// Returns the process id and the start time of the launcher. The launcher is the nearest ancestor
/// that is no rank: its environment lacks `variable`. The start time is included because process
/// ids are reused.
fn launcher_id(variable: &str) -> String {
    let is_rank = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|it| {
            it.strip_prefix(variable.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
        })
    };
    let mut pid = std::os::unix::process::parent_id();
    loop {
        let Some((parent, started)) = parent_and_start_ticks(pid) else { return pid.to_string() };
        if parent <= 1 || !is_rank(pid) {
            return format!("{pid}-{started}");
        }
        pid = parent;
    }
}

/// Returns the id of a process's parent, and the process's start time in ticks since boot. Returns
/// `None` if the process has exited.
pub fn parent_and_start_ticks(pid: u32) -> Option<(u32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The fields after the program's name, which may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> anyhow::Result<Option<Rank>> {
        Rank::from_environment(|name| {
            variables.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn rank(variables: &[(&str, &str)]) -> Rank {
        of(variables).expect("a rank").expect("launched")
    }

    #[test]
    fn rank_is_read_from_each_launcher() {
        let open = rank(&[
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PMIX_RANK", "1"),
            ("PMIX_NAMESPACE", "766509057"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "7"),
        ]);
        assert_eq!((open.number, open.ranks_count, open.ranks_on_host_count), (1, 2, Some(2)));
        assert_eq!(open.job.as_deref(), Some("766509057"));
        let mpich = rank(&[("PMI_RANK", "0"), ("PMI_SIZE", "3"), ("MPI_LOCALNRANKS", "1")]);
        assert_eq!((mpich.number, mpich.ranks_count, mpich.ranks_on_host_count), (0, 3, Some(1)));
        assert_eq!(mpich.job, None);
        let srun = rank(&[
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_NNODES", "2"),
            ("SLURM_JOB_ID", "17"),
            ("SLURM_STEP_ID", "0"),
        ]);
        assert_eq!((srun.number, srun.ranks_count, srun.ranks_on_host_count), (1, 2, Some(1)));
        assert_eq!(srun.job_on_this_host(), "17.0");
        let refused = srun.require_mpi_launcher().expect_err("srun without MPI");
        assert!(refused.to_string().contains("--mpi=pmi2"), "{refused}");
        assert!(open.require_mpi_launcher().is_ok() && mpich.require_mpi_launcher().is_ok());
        assert_eq!(of(&[("HOME", "/root")]).expect("nothing wrong"), None);
    }

    #[test]
    fn bad_rank_is_refused_with_its_variable() {
        let said = |variables: &[(&str, &str)]| of(variables).expect_err("no rank").to_string();
        assert_eq!(
            said(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]),
            "environment variable PMI_RANK=x: not a number"
        );
        assert_eq!(
            said(&[("PMIX_RANK", "0")]),
            "PMIX_RANK is set, but the number of ranks is unknown: set SLURM_STEP_NUM_TASKS or SLURM_NTASKS"
        );
    }

    #[test]
    fn job_without_a_name_is_named_after_its_launcher() {
        let rank = rank(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]);
        let (pid, started) = rank
            .job_on_this_host()
            .split_once('-')
            .map(|(pid, started)| {
                (pid.parse::<u32>().expect("a process"), started.parse::<u64>().expect("a time"))
            })
            .expect("both");
        assert_eq!(pid, std::os::unix::process::parent_id());
        assert_eq!(parent_and_start_ticks(pid).map(|it| it.1), Some(started));
        assert_eq!(file_name_part("../a b/c.0"), "..abc.0");
    }
}
