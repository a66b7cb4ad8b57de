//! Configuration from environment variables.

use crate::config::{Config, Policy};
use crate::error::VariableError;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Environment variable with the pattern of sites that are switched on at the program's start.
pub const PATTERN_VARIABLE: &str = "HANDOVER_TRACE";
/// Environment variable with the trace's path, where `%p` stands for the process ID. The default is
/// `handover.%p.trace`.
pub const FILE_VARIABLE: &str = "HANDOVER_TRACE_FILE";
/// Environment variable with the policy: `stream` (the default) or `last`.
pub const POLICY_VARIABLE: &str = "HANDOVER_TRACE_POLICY";
/// Environment variable with the size of each thread's ring in bytes.
pub const RING_VARIABLE: &str = "HANDOVER_TRACE_RING";
/// Environment variable with the maximum time, in ms, that a thread waits for space in its ring. It
/// applies to streams. After this time the event is lost. The default is 0: the thread does not
/// wait.
pub const WAIT_VARIABLE: &str = "HANDOVER_TRACE_WAIT";

/// Default path of the trace.
const FILE_DEFAULT: &str = "handover.%p.trace";

impl FromStr for Policy {
    type Err = VariableError;

    fn from_str(text: &str) -> Result<Self, VariableError> {
        match text {
            "last" => Ok(Policy::Last),
            "stream" => Ok(Policy::Stream),
            _ => Err(VariableError {
                variable: POLICY_VARIABLE,
                text: text.to_owned(),
                expected: "must be `last` or `stream`",
            }),
        }
    }
}

/// Parses the recording's configuration from the environment variables.
pub(crate) fn config_from_environment() -> Result<Config, VariableError> {
    parse_config_variables(|name| std::env::var(name).ok())
}

/// Parses the recording's configuration from the variables that `read` returns.
fn parse_config_variables(read: impl Fn(&str) -> Option<String>) -> Result<Config, VariableError> {
    let file = read(FILE_VARIABLE).unwrap_or_else(|| FILE_DEFAULT.to_owned());
    let policy = read(POLICY_VARIABLE).map_or(Ok(Policy::Stream), |text| text.parse())?;
    let ring_bytes = read(RING_VARIABLE).map(|text| parse_bytes(&text)).transpose()?;
    let wait = read(WAIT_VARIABLE).map(|text| parse_milliseconds(&text)).transpose()?;
    Ok(build_config(&file, policy, ring_bytes).wait_max(wait.unwrap_or_default()))
}

/// Creates a recording's configuration. `%p` in `file` becomes the process ID. The ring size is the
/// default if `ring_bytes` is `None`.
pub(crate) fn build_config(file: &str, policy: Policy, ring_bytes: Option<u64>) -> Config {
    let path = PathBuf::from(file.replace("%p", &std::process::id().to_string()));
    let config = match policy {
        Policy::Last => Config::last(path),
        Policy::Stream => Config::stream(path),
    };
    match ring_bytes {
        Some(ring_bytes) => config.ring_bytes(ring_bytes),
        None => config,
    }
}

/// Parses the size of a ring in bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, VariableError> {
    let number: Option<u64> = text.parse().ok();
    let sound = number.filter(|bytes| Config::last("x").ring_bytes(*bytes).validate().is_ok());
    sound.ok_or_else(|| VariableError {
        variable: RING_VARIABLE,
        text: text.to_owned(),
        expected: "must be a number of bytes in 8192..=4294967296",
    })
}

/// Parses the maximum wait in milliseconds.
pub(crate) fn parse_milliseconds(text: &str) -> Result<Duration, VariableError> {
    let wait = text.parse().map(Duration::from_millis).ok();
    let sound = wait.filter(|wait| Config::stream("x").wait_max(*wait).validate().is_ok());
    sound.ok_or_else(|| VariableError {
        variable: WAIT_VARIABLE,
        text: text.to_owned(),
        expected: "must be a number of milliseconds in 0..=3600000",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_parsed_into_a_configuration() {
        let all = |name: &str| match name {
            FILE_VARIABLE => Some("/tmp/%p.t".to_owned()),
            POLICY_VARIABLE => Some("last".to_owned()),
            RING_VARIABLE => Some("65536".to_owned()),
            WAIT_VARIABLE => Some("20".to_owned()),
            _ => None,
        };
        let path = format!("/tmp/{}.t", std::process::id());
        let expected = Config::last(path).ring_bytes(65536).wait_max(Duration::from_millis(20));
        assert_eq!(parse_config_variables(all).unwrap(), expected);
        assert_eq!(parse_config_variables(|_| None).unwrap().policy(), Policy::Stream);
    }

    #[test]
    fn invalid_value_is_reported_with_its_variable() {
        for (name, text) in [
            (POLICY_VARIABLE, "all"),
            (RING_VARIABLE, "4k"),
            (RING_VARIABLE, "1"),
            (WAIT_VARIABLE, "1s"),
            (WAIT_VARIABLE, "3601000"),
        ] {
            let error = parse_config_variables(|asked| (asked == name).then(|| text.to_owned()))
                .unwrap_err();
            assert!(error.to_string().starts_with(&format!("{name}={text}: ")), "{error}");
        }
    }

    #[test]
    fn policy_parses_from_its_display() {
        for policy in [Policy::Last, Policy::Stream] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        assert!("first".parse::<Policy>().unwrap_err().to_string().contains("`last` or `stream`"));
    }
}
