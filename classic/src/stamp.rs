//! The prefix of lines printed by trylock and notify: `001.843513 fn_busy    [109] `.

use handover_base::clock;
use handover_base::units::format_ns;
use handover_harness::stats::quantile_sorted;
use std::io::{self, Write};
use std::time::Instant;

/// Clock that stamps printed lines with the time since the program began.
#[derive(Clone, Copy)]
pub struct LineClock {
    began: Instant,
}

impl LineClock {
    pub fn new() -> LineClock {
        LineClock { began: Instant::now() }
    }

    /// Prints a line with time, function name, source line number and text. The function name takes
    /// ten columns.
    pub fn write_line(
        self,
        out: &mut dyn Write,
        function: &str,
        line: u32,
        text: std::fmt::Arguments<'_>,
    ) -> io::Result<()> {
        let elapsed = self.began.elapsed();
        let (seconds, micros) = (elapsed.as_secs() % 1000, elapsed.subsec_micros());
        writeln!(out, "{seconds:03}.{micros:06} {function:<10.10} [{line}] {text}")
    }
}

/// Formats the quantiles of costs given in clock ticks. Also gives the cost of reading the clock,
/// which each cost includes.
pub fn format_quantiles(costs_ticks: impl Iterator<Item = u64>) -> String {
    let mut costs_ns: Vec<f64> =
        costs_ticks.map(|ticks| clock::ps_from_ticks(ticks) as f64 / 1000.0).collect();
    costs_ns.sort_unstable_by(f64::total_cmp);
    let at = |q: f64| format_ns(quantile_sorted(&costs_ns, q));
    format!(
        "p50 {}, p90 {}, p99 {}, p99.9 {}, max {}; the clock's part of each: {}",
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0),
        format_ns(clock::calibration().cost_ns)
    )
}

/// Formats a number as C does with `%.3e`: `2.031e+08`.
pub fn format_e3(value: f64) -> String {
    format_exponent(value, 3)
}

/// Formats a number as C does with `%e`: `0.000000e+00`.
pub fn format_e6(value: f64) -> String {
    format_exponent(value, 6)
}

/// Formats a number with an exponent of two or more digits, as C does.
fn format_exponent(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, power)) => {
            let (sign, power) = match power.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', power),
            };
            format!("{mantissa}e{sign}{power:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_print_as_printf_prints_them() {
        assert_eq!(format_e3(203_100_000.0), "2.031e+08");
        assert_eq!(format_e6(0.0), "0.000000e+00");
        assert_eq!(format_e3(0.0), "0.000e+00");
        assert_eq!(format_e3(57.0), "5.700e+01");
        assert_eq!(format_e3(1.5e-12), "1.500e-12");
        assert_eq!(format_e3(-2.5e100), "-2.500e+100");
        assert_eq!(format_e3(9.9996), "1.000e+01");
        assert_eq!(format_e3(f64::INFINITY), "inf");
    }

    #[test]
    fn line_starts_with_time_function_and_source_line() {
        let mut out = Vec::new();
        LineClock::new()
            .write_line(&mut out, "snd_slow_body", 109, format_args!("x"))
            .expect("write to memory");
        let text = String::from_utf8(out).expect("the output is not UTF-8");
        assert!(text.starts_with("000.") && text.ends_with(" snd_slow_b [109] x\n"), "{text}");
    }
}
