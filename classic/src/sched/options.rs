//! The scheduler's options, given after `--` in dummynet's style.

use handover_base::units::Count;
use handover_sched::Algorithm;
use handover_suite::sched::flowset::FlowSet;

const ALGORITHM_DEFAULT: Algorithm = Algorithm::Rr;
/// Minimum number of flows without `-flowsets`; with more clients, each has a flow.
const FLOWS_COUNT_DEFAULT: u32 = 16;
/// Default packet length.
const LENGTH_BYTES_DEFAULT: u32 = 1500;

/// Names of the options for the scheduling algorithm.
pub const OPTION_NAMES: [&str; 3] = ["-alg", "-flowsets", "-qmax"];

/// Options of the scheduling algorithm in runs with clients.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    pub algorithm: Algorithm,
    pub flows: FlowSet,
    /// Maximum number of queued packets of a flow; `None` for no limit.
    pub queued_max: Option<u32>,
}

impl SchedulerOptions {
    /// Parses the options of a run with `threads` clients.
    ///
    /// # Errors
    /// A line that names the option and the error.
    pub fn parse(words: &[String], threads: u32) -> Result<SchedulerOptions, String> {
        let flows = FlowSet::equal(1, LENGTH_BYTES_DEFAULT, threads.max(FLOWS_COUNT_DEFAULT));
        let mut options =
            SchedulerOptions { algorithm: ALGORITHM_DEFAULT, flows, queued_max: None };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{option} needs a value"));
            match option.as_str() {
                "-alg" => {
                    options.algorithm =
                        value()?.parse().map_err(|refused| format!("-alg: {refused}"))?;
                }
                "-flowsets" => {
                    options.flows =
                        value()?.parse().map_err(|refused| format!("-flowsets: {refused}"))?;
                }
                "-qmax" => options.queued_max = Some(parse_count("-qmax", value()?)?),
                "-n" | "-d" | "-len" | "-burst" | "-qmin" | "-flows" => {
                    return Err(format!(
                        "{option} is an option of the test: add --test before `--`"
                    ));
                }
                _ => {
                    return Err(format!(
                        "unknown scheduler option {option:?}; use -alg, -flowsets or -qmax"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Parses a positive number; an error names the option.
fn parse_count(option: &str, text: &str) -> Result<u32, String> {
    let count: Count = text.parse().map_err(|refused| format!("{option}: {refused}"))?;
    let count = u32::try_from(count.0).ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("{option} {text}: must lie in 1..={max}", max = u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<SchedulerOptions, String> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        SchedulerOptions::parse(&words, 20)
    }

    #[test]
    fn no_options_give_sixteen_equal_flows_or_one_for_each_client() {
        let options = read("").expect("parse no options");
        assert_eq!(options.algorithm, Algorithm::Rr);
        assert_eq!(options.flows.to_string(), "1:1500:20");
        assert_eq!(options.queued_max, None);
        let options = SchedulerOptions::parse(&[], 1).expect("parse no options");
        assert_eq!(options.flows.to_string(), "1:1500:16");
    }

    #[test]
    fn options_of_the_examples_parse_in_any_order() {
        let options = read("-flowsets 100:1500:1,1:1500:16 -alg wf2qp -qmax 2k").expect("options");
        assert_eq!(options.algorithm, Algorithm::Wf2qPlus);
        assert_eq!((options.flows.flows_count(), options.queued_max), (17, Some(2000)));
    }

    #[test]
    fn wrong_options_are_refused_with_a_remedy() {
        for (line, said) in [
            ("-alg fair", "-alg: no algorithm is called \"fair\": there are fifo, rr (or drr)"),
            ("-alg", "-alg needs a value"),
            ("-flowsets 1:1500", "-flowsets: part 1, column 7 of the flow set: expected `:`"),
            ("-qmax 0", "-qmax 0: must lie in 1..=4294967295"),
            ("-qmax few", "-qmax: \"few\""),
            ("-burst 3", "-burst is an option of the test: add --test before `--`"),
            ("-x", "unknown scheduler option \"-x\"; use -alg, -flowsets or -qmax"),
        ] {
            let refused = read(line).expect_err(line);
            assert!(refused.starts_with(said), "{line}: {refused}");
        }
    }
}
