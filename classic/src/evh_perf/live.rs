//! The live view on a terminal, below the printed lines: current values and their recent history.

use handover_program::console;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Interval between updates of the view.
const DRAW_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of past values shown in a line, one per column.
const PAST_COLUMNS: usize = 40;
/// Width of the text before the past values, in columns.
const TEXT_COLUMNS: usize = 34;
/// Bars of a chart, from zero to the highest value shown.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Characters that replace [`HEIGHTS`] on a terminal without Unicode.
const PLAIN_HEIGHTS: [char; 8] = ['_', '.', ',', '-', '=', '+', '*', '#'];

/// Live view of current values, one per line. Shows nothing if standard error is not a terminal.
pub struct LiveView {
    /// Display of the lines on standard error; `None` if standard error is not a terminal.
    display: Option<ProgressBar>,
    /// Past values of each line, the oldest first.
    past_values: Vec<VecDeque<f64>>,
    last_update: Instant,
    /// Bars of a chart: [`HEIGHTS`] or [`PLAIN_HEIGHTS`].
    heights: &'static [char; 8],
    /// Width of a chart.
    chart_columns: usize,
}

impl LiveView {
    /// Creates a view that shows nothing yet.
    pub fn new() -> Self {
        let display = console::should_show_progress_bar().then(|| {
            let display = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{msg}");
            display.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            display
        });
        let has_unicode = console::output_style(false).unicode;
        let room = console::output_width().saturating_sub(TEXT_COLUMNS + 2);
        Self {
            display,
            past_values: Vec::new(),
            last_update: Instant::now(),
            heights: if has_unicode { &HEIGHTS } else { &PLAIN_HEIGHTS },
            chart_columns: room.min(PAST_COLUMNS),
        }
    }

    /// Starts the next update interval if the current one has passed. Returns the time since the
    /// last update, or `None` if no update is due.
    pub fn take_time_since_update(&mut self) -> Option<Duration> {
        let since = self.last_update.elapsed();
        if self.display.is_none() || since < DRAW_INTERVAL {
            return None;
        }
        self.last_update += since;
        Some(since)
    }

    /// Shows each value as text and as a chart of its past values.
    pub fn update(&mut self, lines: &[(f64, String)]) {
        let Some(display) = &self.display else { return };
        self.past_values.resize_with(lines.len(), VecDeque::new);
        let mut shown = String::new();
        for ((value, text), past) in lines.iter().zip(&mut self.past_values) {
            past.push_back(*value);
            while past.len() > self.chart_columns {
                past.pop_front();
            }
            let end = if shown.is_empty() { "" } else { "\n" };
            shown += &format!("{end}{text:>TEXT_COLUMNS$} {}", height_chart(past, self.heights));
        }
        display.set_message(shown);
        display.tick();
    }

    /// Calls `prints`, and shows its output above the view.
    pub fn print_above<T>(&self, prints: impl FnOnce() -> T) -> T {
        match &self.display {
            Some(display) => display.suspend(prints),
            None => prints(),
        }
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        if let Some(display) = &self.display {
            display.finish_and_clear();
        }
    }
}

/// Returns a bar chart of one character per value, scaled to the highest value.
fn height_chart(values: &VecDeque<f64>, heights: &[char; 8]) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let height = |value: &f64| match most > 0.0 {
        // At most 7.
        true => (value / most * 7.0).round().clamp(0.0, 7.0) as usize,
        false => 0,
    };
    values.iter().map(|value| heights[height(value)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_columns_are_scaled_to_the_highest() {
        let height_chart =
            |values: &[f64]| height_chart(&values.iter().copied().collect(), &HEIGHTS);
        assert_eq!(height_chart(&[0.0, 3.5, 7.0, 1.0]), "▁▅█▂");
        assert_eq!(height_chart(&[0.0, 0.0]), "▁▁");
        assert_eq!(height_chart(&[]), "");
    }
}
