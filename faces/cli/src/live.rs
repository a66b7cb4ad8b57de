//! Live view of a run on a terminal: the ladder, filled with figures as they are measured.
//!
//! **It must not disturb the measurement that it shows.** There is no drawing thread: the measuring
//! thread calls [`Live`] between two blocks, when no participant runs, and only then are keys read,
//! the view drawn, or a clock read. This happens at most [four times a second](DRAW_INTERVAL), and
//! then the CPUs are left for [two milliseconds](SETTLE_TIME) to the programs that paint the output
//! (a terminal, a multiplexer, sshd), which would otherwise run during the next round: altogether
//! one part in a hundred of a run. Only changes are drawn, some hundred bytes in one write. While a
//! block of some seconds is measured, the view does not change.
//!
//! [`ladder`] draws the ladder, independent of a terminal; [`screen`] is the terminal, which it
//! restores in every case: the run's end, an error, a panic in any thread, a second Ctrl-C.

mod ladder;
mod screen;

use handover_harness::Lab;
use handover_program::console;
use handover_record::Record;
use ladder::LadderView;
use ratatui_core::terminal::Terminal;
use screen::{KeyAction, Screen};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use screen::restore_terminal;

/// Minimum interval between two drawings of the view.
const DRAW_INTERVAL: Duration = Duration::from_millis(250);
/// Pause after a drawing, in which the terminal emulator can display it.
const SETTLE_TIME: Duration = Duration::from_millis(2);

/// Live view of a run on its terminal, until dropped.
pub struct Live {
    terminal: Terminal<Screen>,
    ladder: LadderView,
    start_time: Instant,
    /// Time of the last drawing.
    last_drawing: Option<Instant>,
    /// Flag that ends the run. The key `q` sets it.
    interrupted: Arc<AtomicBool>,
    /// Lines to print after the view is closed.
    messages: Vec<String>,
}

impl Live {
    /// Opens the view. Returns `None` if standard error is no capable terminal or this process is
    /// not in its foreground. The key `q` sets `interrupted`. `swept_argument` is the name of the
    /// argument that a sweep varies.
    pub fn start(
        lab: &Lab,
        profile: &str,
        swept_argument: Option<&str>,
        interrupted: Arc<AtomicBool>,
    ) -> Option<Live> {
        let screen = Screen::enter(ladder::SIZE_MIN)?;
        let has_keys = screen.has_keys();
        let terminal = Terminal::new(screen).ok()?;
        let mut ladder =
            LadderView::new(lab, profile, swept_argument, console::output_style(false).unicode);
        ladder.has_keys = has_keys;
        let messages = Vec::new();
        Some(Live {
            terminal,
            ladder,
            start_time: Instant::now(),
            last_drawing: None,
            interrupted,
            messages,
        })
    }

    /// Shows the start of a visit (the measurement of one benchmark in one pass). `visit` is the
    /// visit's index and the number of visits.
    pub fn start_visit(&mut self, visit: (usize, usize), benchmark_index: usize) {
        self.ladder.set_visit(visit, benchmark_index);
        self.update();
    }

    /// Shows the number of measured blocks in the visit (`done`), and their maximum number
    /// (`most`).
    pub fn show_blocks(&mut self, done: u32, most: u32) {
        self.ladder.set_blocks(done, most);
        self.update();
    }

    /// Sets the figure of the benchmark that `records` belong to. It appears at the next drawing.
    pub fn show_records(&mut self, records: &[Record]) {
        self.ladder.set_figure(records);
    }

    /// Shows a line at the next drawing, and prints it after the view is closed.
    pub fn print_line(&mut self, line: String) {
        self.ladder.add_message(line.clone());
        self.messages.push(line);
    }

    /// Reads the keys and draws the view, if [`DRAW_INTERVAL`] has passed since the last drawing.
    fn update(&mut self) {
        if self.last_drawing.is_some_and(|last| last.elapsed() < DRAW_INTERVAL)
            || screen::is_closed()
        {
            return;
        }
        for key in self.terminal.backend_mut().read_key_actions() {
            match key {
                // Relaxed: the flag publishes no other data.
                KeyAction::Quit => self.interrupted.store(true, Ordering::Relaxed),
                KeyAction::Redraw => drop(self.terminal.clear()),
            }
        }
        self.ladder.is_ending = self.interrupted.load(Ordering::Relaxed);
        let since = self.start_time.elapsed();
        // A closed terminal cannot be drawn on; the run continues without it.
        let _ = self.terminal.draw(|frame| {
            let area = frame.area();
            self.ladder.draw(since, area, frame.buffer_mut());
        });
        std::thread::sleep(SETTLE_TIME);
        self.last_drawing = Some(Instant::now());
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        restore_terminal();
        self.messages.iter().for_each(console::print_error);
    }
}
