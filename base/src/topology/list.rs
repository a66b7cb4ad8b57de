//! The kernel's notation for sets of CPUs: `0-3,8`.

use std::fmt;

/// Error of parsing a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a list of CPUs: write for example 0-3,8")]
pub struct CpuListError {
    text: String,
}

/// Maximum CPU number in a list. It keeps `0-4294967295` from exhausting the memory; kernels
/// support at most 8192 CPUs.
const CPU_MAX: u32 = 65_535;

/// Parses a list of CPUs such as `0-3,8`; returns the CPUs sorted and without repetition. An empty
/// text is an empty list. Strides (`0-6:2/4`), which the kernel accepts, are errors.
///
/// ```
/// use handover_base::topology::parse_cpu_list;
/// assert_eq!(parse_cpu_list("0-2,8\n").unwrap(), [0, 1, 2, 8]);
/// assert!(parse_cpu_list("3-1").is_err());
/// ```
///
/// # Errors
/// If a number is missing, malformed or above 65,535, or a range is descending.
pub fn parse_cpu_list(text: &str) -> Result<Vec<u32>, CpuListError> {
    let mut cpus = Vec::new();
    let list = text.trim();
    if list.is_empty() {
        return Ok(cpus);
    }
    for part in list.split(',') {
        let (low, high) =
            parse_range(part.trim()).ok_or_else(|| CpuListError { text: list.to_owned() })?;
        cpus.extend(low..=high);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// Parses `4` or `0-3` into the first and last number.
fn parse_range(part: &str) -> Option<(u32, u32)> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten().filter(|&cpu| cpu <= CPU_MAX)
    };
    let (low, high) = part.split_once('-').unwrap_or((part, part));
    let (low, high) = (number(low)?, number(high)?);
    (low <= high).then_some((low, high))
}

/// Formatter of sorted CPU numbers in the kernel's notation: `0-3,8`; `none` if there are none.
///
/// ```
/// use handover_base::topology::CpuList;
/// assert_eq!(CpuList(&[0, 1, 2, 8]).to_string(), "0-2,8");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuList<'a>(pub &'a [u32]);

impl fmt::Display for CpuList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let runs = self.0.chunk_by(|a, b| a.checked_add(1) == Some(*b));
        for (i, run) in runs.enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match run {
                [one] => write!(f, "{comma}{one}")?,
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [] => {}
            }
        }
        Ok(())
    }
}
