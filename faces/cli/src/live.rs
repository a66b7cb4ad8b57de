//! The live view of a run: the ladder as it fills up, on a terminal.
//!
//! **It must not disturb what it shows.** There is no thread that draws: [`Live`] is told of what happens by the
//! thread that measures, between two blocks, when no party runs, and only then it looks at the keys, draws, or
//! reads a clock. It does so at most [four times a second](EVERY), and then leaves the CPUs for
//! [two milliseconds](SETTLE) to whoever paints what was written (a terminal, a multiplexer, sshd), who would
//! otherwise do it in the next round: all in all one part in a hundred of a run. What is drawn is what has changed, some
//! hundred bytes in one write. While a block of some seconds is measured, the view stands still.
//!
//! The ladder is drawn by [`ladder`], which knows no terminal; [`screen`] is the terminal, and gives it back as
//! it was on every way out: the run's end, an error, a panic in whatever thread, the second Ctrl-C.

mod ladder;
mod screen;

use crate::console;
use handover_harness::Lab;
use handover_record::Record;
use ladder::Ladder;
use ratatui_core::terminal::Terminal;
use screen::{Key, Screen};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use screen::restore;

/// How often it is drawn anew, at most.
const EVERY: Duration = Duration::from_millis(250);
/// How long the CPUs are left to who shows it.
const SETTLE: Duration = Duration::from_millis(2);

/// A run's view on its terminal, until it is dropped.
pub struct Live {
    terminal: Terminal<Screen>,
    ladder: Ladder,
    began: Instant,
    drawn: Option<Instant>,
    interrupted: Arc<AtomicBool>,
    /// What is to be read when the view is gone.
    told: Vec<String>,
}

impl Live {
    /// Takes the terminal, where standard error is one that can show a view and this process may have it.
    /// `q` will raise `interrupted`. `over` is the argument that a sweep goes over.
    pub fn start(
        lab: &Lab,
        profile: &str,
        over: Option<&str>,
        interrupted: Arc<AtomicBool>,
    ) -> Option<Live> {
        let screen = Screen::enter(ladder::SIZE_MIN)?;
        let has_keys = screen.has_keys();
        let terminal = Terminal::new(screen).ok()?;
        let mut ladder = Ladder::new(lab, profile, over, console::style(false).unicode);
        ladder.has_keys = has_keys;
        let told = Vec::new();
        Some(Live { terminal, ladder, began: Instant::now(), drawn: None, interrupted, told })
    }

    /// A visit to a benchmark begins: one of so many.
    pub fn begin(&mut self, visit: (usize, usize), group: usize) {
        self.ladder.begin(visit, group);
        self.look();
    }

    /// So many of at most so many blocks of it are done.
    pub fn block(&mut self, done: u32, most: u32) {
        self.ladder.block(done, most);
        self.look();
    }

    /// It yielded these figures.
    pub fn records(&mut self, records: &[Record]) {
        self.ladder.records(records);
    }

    /// A line that is to be read now, and still when the view is gone.
    pub fn tell(&mut self, line: String) {
        self.ladder.tell(line.clone());
        self.told.push(line);
    }

    /// Looks at the keys and draws, where it is time to.
    fn look(&mut self) {
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < EVERY) || screen::is_left() {
            return;
        }
        for key in self.terminal.backend_mut().keys() {
            match key {
                // Relaxed: a flag alone.
                Key::Quit => self.interrupted.store(true, Ordering::Relaxed),
                Key::Redraw => drop(self.terminal.clear()),
            }
        }
        self.ladder.is_ending = self.interrupted.load(Ordering::Relaxed);
        let since = self.began.elapsed();
        // A terminal that is gone takes no more: the run goes on without.
        let _ = self.terminal.draw(|frame| {
            let area = frame.area();
            self.ladder.draw(since, area, frame.buffer_mut());
        });
        std::thread::sleep(SETTLE);
        self.drawn = Some(Instant::now());
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        restore();
        self.told.iter().for_each(console::tell);
    }
}
