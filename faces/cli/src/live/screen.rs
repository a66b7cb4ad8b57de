//! The terminal at standard error: its other screen, its keys, and its way back.
//!
//! Signals stay signals: Ctrl-C raises the flag that ends a run anywhere. Ctrl-Z and Ctrl-\ are switched off
//! meanwhile, as a run that was stopped has measured the stop, and a core has no use.

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcgetwinsize,
    tcsetattr,
};
use std::io::{self, IsTerminal, Write, stderr, stdin};
use std::sync::{Mutex, Once, PoisonError};

/// The other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// Back, in no colour.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";
/// In `c_cc`, no key at all.
const NO_KEY: u8 = 0;

/// How the terminal was, while it is ours.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Gives the terminal back as it was, if it is ours; from any thread, as often as one likes.
pub fn restore() {
    // Locked to the end, so that whoever finds it empty finds the terminal restored.
    let mut before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(modes) = before.take() {
        // Where the terminal is gone there is nothing to restore.
        let _ = stderr().lock().write_all(LEAVE.as_bytes());
        let _ = tcsetattr(stderr(), OptionalActions::Flush, &modes);
    }
}

/// Whether the terminal is not ours, or no longer.
pub fn is_left() -> bool {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner).is_none()
}

/// A panic's message is to be read: the view ends first, for good, whatever thread it is.
fn leave_before_panics() {
    static HOOKED: Once = Once::new();
    HOOKED.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            usual(panic);
        }));
    });
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The end of the run.
    Quit,
    /// Everything anew: something else has written here.
    Redraw,
}

/// The keys of what was typed.
fn keys_of(typed: &[u8]) -> Vec<Key> {
    const CTRL_L: u8 = 0x0c;
    let key = |byte: &u8| match byte {
        b'q' | b'Q' => Some(Key::Quit),
        &CTRL_L => Some(Key::Redraw),
        _ => None,
    };
    typed.iter().filter_map(key).collect()
}

/// Where the view is drawn. Nothing reaches the terminal before [`flush`](Backend::flush), and then all at
/// once.
pub struct Screen {
    pending: Vec<u8>,
    has_keys: bool,
}

impl Screen {
    /// Takes the terminal at standard error; none where there is none of at least this size, or where another
    /// process has it (a run in the background).
    pub fn enter(size_min: Size) -> Option<Screen> {
        let terminal = stderr();
        // One that is not the session's has no group in the foreground.
        let is_others = tcgetpgrp(&terminal).is_ok_and(|group| group != getpgrp());
        if !terminal.is_terminal() || is_others {
            return None;
        }
        let size = size().ok()?;
        if size.width < size_min.width || size.height < size_min.height {
            return None;
        }
        let usual = tcgetattr(&terminal).ok()?;
        let mut modes = usual.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        for code in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
            modes.special_codes[code] = NO_KEY;
        }
        leave_before_panics();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(usual);
        let entered = tcsetattr(&terminal, OptionalActions::Now, &modes).is_ok()
            && terminal.lock().write_all(ENTER.as_bytes()).is_ok();
        if !entered {
            restore();
            return None;
        }
        Some(Screen { pending: Vec::new(), has_keys: stdin().is_terminal() })
    }

    /// Whether somebody can type.
    pub fn has_keys(&self) -> bool {
        self.has_keys
    }

    /// What was typed since the last look; waits for nothing.
    pub fn keys(&mut self) -> Vec<Key> {
        let mut typed = [0; 64];
        let input = stdin();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut asked = [PollFd::new(&input, PollFlags::IN)];
        let is_there = self.has_keys
            && poll(&mut asked, Some(&now)).is_ok()
            && asked[0].revents().contains(PollFlags::IN);
        match is_there.then(|| rustix::io::read(&input, &mut typed)) {
            Some(Ok(0) | Err(_)) => {
                // Its other end is gone.
                self.has_keys = false;
                Vec::new()
            }
            Some(Ok(count)) => keys_of(&typed[..count]),
            None => Vec::new(),
        }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Memory takes everything.
        let _ = self.pending.write_fmt(text);
    }
}

fn size() -> io::Result<Size> {
    let size = tcgetwinsize(stderr())?;
    Ok(Size::new(size.ws_col, size.ws_row))
}

/// The numbers of `CSI … m` that give a cell its look, each after a `;`.
fn look(cell: &Cell) -> String {
    let mut codes = String::new();
    for (modifier, code) in
        [(Modifier::BOLD, ";1"), (Modifier::DIM, ";2"), (Modifier::REVERSED, ";7")]
    {
        if cell.modifier.contains(modifier) {
            codes.push_str(code);
        }
    }
    codes.push_str(match cell.fg {
        Color::Red => ";31",
        Color::Green => ";32",
        Color::Yellow => ";33",
        Color::Cyan => ";36",
        _ => "",
    });
    codes
}

impl Backend for Screen {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut worn = String::new();
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                self.push(format_args!("\x1b[{};{}H", y + 1, x + 1));
            }
            let look = look(cell);
            if look != worn {
                self.push(format_args!("\x1b[0{look}m"));
                worn = look;
            }
            self.pending.extend_from_slice(cell.symbol().as_bytes());
            // All that is drawn is one column wide.
            next = Some((x + 1, y));
        }
        if !worn.is_empty() {
            self.push(format_args!("\x1b[0m"));
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.push(format_args!("\x1b[?25l"));
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.push(format_args!("\x1b[?25h"));
        Ok(())
    }

    /// It is hidden, and wherever the last change was.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        self.push(format_args!("\x1b[{};{}H", y + 1, x + 1));
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        let code = match region {
            ClearType::All => "2J",
            ClearType::AfterCursor => "J",
            ClearType::BeforeCursor => "1J",
            ClearType::CurrentLine => "2K",
            ClearType::UntilNewLine => "K",
        };
        self.push(format_args!("\x1b[{code}"));
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        // Under the lock that restoring takes: nothing is drawn on the screen that was given back.
        let ours = BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
        let written = match ours.is_some() {
            true => stderr().lock().write_all(&self.pending),
            false => Ok(()),
        };
        self.pending.clear();
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::style::Style;
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};
    use std::process::{Command, Stdio};

    #[test]
    fn a_q_ends_the_run_and_other_keys_do_not() {
        assert_eq!(keys_of(b"x\x1b[Aq"), [Key::Quit]);
        assert_eq!(keys_of(b"\x0c"), [Key::Redraw]);
        assert_eq!(keys_of(b"\r\n yes"), []);
    }

    #[test]
    fn cells_that_follow_each_other_are_written_as_one_text() {
        let mut screen = Screen { pending: Vec::new(), has_keys: false };
        let mut cells = [Cell::new("a"), Cell::new("b"), Cell::new("c"), Cell::new("d")];
        cells[1].set_style(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        let [a, b, c, d] = &cells;
        screen.draw([(3, 0, a), (4, 0, b), (5, 0, c), (0, 2, d)].into_iter()).unwrap();
        let text = String::from_utf8(screen.pending).unwrap();
        assert_eq!(text, "\x1b[1;4Ha\x1b[0;1;31mb\x1b[0mc\x1b[3;1Hd");
    }

    /// Tells the test below that it is the one on the terminal.
    const ON_IT: &str = "HANDOVER_TEST_ON_TERMINAL";

    #[test]
    fn a_panic_in_any_thread_gives_the_terminal_back_before_it_is_told() {
        if std::env::var_os(ON_IT).is_some() {
            assert!(is_left());
            let _screen = Screen::enter(Size::new(20, 5)).expect("a terminal");
            assert!(!is_left());
            let other = std::thread::spawn(|| panic!("for a test"));
            assert!(other.join().is_err() && is_left());
            return restore();
        }
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).expect("its other end");
        unlockpt(&ours).expect("its other end");
        let name = ptsname(&ours, Vec::new()).expect("its name");
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
        let theirs = theirs.expect("its other end");
        let size = Winsize { ws_row: 25, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).expect("its size");
        let modes = || {
            let it = tcgetattr(&theirs).expect("its modes");
            (it.local_modes, it.special_codes[SpecialCodeIndex::VSUSP])
        };
        let before = modes();
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        let name = std::thread::current().name().expect("this test").to_string();
        again.args(["--exact", &name, "--nocapture"]).env(ON_IT, "1").stdout(Stdio::null());
        again.stdin(Stdio::null()).stderr(theirs.try_clone().expect("an end"));
        let status = again.status().expect("it runs");
        assert!(status.success(), "{status}");
        assert!(modes() == before, "the modes are as they were");
        let mut shown = [0; 4096];
        let count = rustix::io::read(&ours, &mut shown).expect("what it showed");
        let shown = String::from_utf8_lossy(&shown[..count]);
        let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text:?} in {shown:?}"));
        assert!(at(ENTER) < at(LEAVE) && at(LEAVE) < at("for a test"), "{shown:?}");
        assert_eq!(shown.matches(LEAVE).count(), 1, "{shown:?}");
    }
}
