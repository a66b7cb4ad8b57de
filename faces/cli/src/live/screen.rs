//! Terminal at standard error: alternate screen, keys, and restoration of its modes.
//!
//! Signals keep their meaning: Ctrl-C sets the flag that interrupts a run. Ctrl-Z and Ctrl-\ are
//! disabled meanwhile, as a stopped run would measure the stop, and a core dump is of no use.

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

/// Escape sequences that switch to the alternate screen and hide the cursor.
const ENTER_SEQUENCE: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
/// Escape sequences that reset the colours, show the cursor and leave the alternate screen.
const LEAVE_SEQUENCE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";
/// Value in `c_cc` that disables a special key.
const NO_KEY: u8 = 0;

/// Terminal modes from before the view was opened; `None` while no view is open.
static MODES_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Restores the terminal if a view is open. May be called from any thread, any number of times.
pub fn restore_terminal() {
    // Locked until the end, so that a thread that sees `None` finds the terminal restored.
    let mut before = MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(modes) = before.take() {
        // If the terminal is closed, there is nothing to restore.
        let _ = stderr().lock().write_all(LEAVE_SEQUENCE.as_bytes());
        let _ = tcsetattr(stderr(), OptionalActions::Flush, &modes);
    }
}

/// Returns `true` if no view is open.
pub fn is_closed() -> bool {
    MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner).is_none()
}

/// Installs a panic hook that closes the view before a panic's message is printed. Later calls do
/// nothing.
fn install_panic_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            usual(panic);
        }));
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// Action that a key requests.
pub enum KeyAction {
    /// Interrupts the run.
    Quit,
    /// Redraws everything, to remove other output from the terminal.
    Redraw,
}

/// Returns the actions of the typed bytes; other bytes are ignored.
fn key_actions(typed: &[u8]) -> Vec<KeyAction> {
    const CTRL_L: u8 = 0x0c;
    let key = |byte: &u8| match byte {
        b'q' | b'Q' => Some(KeyAction::Quit),
        &CTRL_L => Some(KeyAction::Redraw),
        _ => None,
    };
    typed.iter().filter_map(key).collect()
}

/// Terminal backend of the view. Nothing is written to the terminal before
/// [`flush`](Backend::flush), which writes everything at once.
pub struct Screen {
    /// Output that is not written yet.
    pending: Vec<u8>,
    /// `true` if keys that the user types can be read.
    has_keys: bool,
}

impl Screen {
    /// Opens the view on the terminal at standard error. Returns `None` if there is none of at
    /// least this size, or if this process is in the background.
    pub fn enter(size_min: Size) -> Option<Screen> {
        let terminal = stderr();
        // A terminal that is not the session's has no foreground group.
        let is_others = tcgetpgrp(&terminal).is_ok_and(|group| group != getpgrp());
        if !terminal.is_terminal() || is_others {
            return None;
        }
        let size = terminal_size().ok()?;
        if size.width < size_min.width || size.height < size_min.height {
            return None;
        }
        let usual = tcgetattr(&terminal).ok()?;
        let mut modes = usual.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        for code in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
            modes.special_codes[code] = NO_KEY;
        }
        install_panic_hook();
        *MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(usual);
        let entered = tcsetattr(&terminal, OptionalActions::Now, &modes).is_ok()
            && terminal.lock().write_all(ENTER_SEQUENCE.as_bytes()).is_ok();
        if !entered {
            restore_terminal();
            return None;
        }
        Some(Screen { pending: Vec::new(), has_keys: stdin().is_terminal() })
    }

    /// Returns `true` if keys that the user types can be read.
    pub fn has_keys(&self) -> bool {
        self.has_keys
    }

    /// Returns the actions of the keys typed since the last call; does not block.
    pub fn read_key_actions(&mut self) -> Vec<KeyAction> {
        let mut typed = [0; 64];
        let input = stdin();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(&input, PollFlags::IN)];
        let is_there = self.has_keys
            && poll(&mut polled, Some(&now)).is_ok()
            && polled[0].revents().contains(PollFlags::IN);
        match is_there.then(|| rustix::io::read(&input, &mut typed)) {
            Some(Ok(0) | Err(_)) => {
                // The other end of the terminal is closed.
                self.has_keys = false;
                Vec::new()
            }
            Some(Ok(count)) => key_actions(&typed[..count]),
            None => Vec::new(),
        }
    }

    /// Appends text to the pending output.
    fn append_output(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to memory cannot fail.
        let _ = self.pending.write_fmt(text);
    }
}

fn terminal_size() -> io::Result<Size> {
    let size = tcgetwinsize(stderr())?;
    Ok(Size::new(size.ws_col, size.ws_row))
}

/// Returns the codes of a cell's style for the escape sequence `CSI … m`, each after a `;`.
fn style_sequence(cell: &Cell) -> String {
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
                self.append_output(format_args!("\x1b[{};{}H", y + 1, x + 1));
            }
            let style_sequence = style_sequence(cell);
            if style_sequence != worn {
                self.append_output(format_args!("\x1b[0{style_sequence}m"));
                worn = style_sequence;
            }
            self.pending.extend_from_slice(cell.symbol().as_bytes());
            // All characters of the view are one column wide.
            next = Some((x + 1, y));
        }
        if !worn.is_empty() {
            self.append_output(format_args!("\x1b[0m"));
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.append_output(format_args!("\x1b[?25l"));
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.append_output(format_args!("\x1b[?25h"));
        Ok(())
    }

    /// Returns the origin: the cursor is hidden, and its position does not matter.
    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        self.append_output(format_args!("\x1b[{};{}H", y + 1, x + 1));
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
        self.append_output(format_args!("\x1b[{code}"));
        Ok(())
    }

    fn size(&self) -> io::Result<Size> {
        terminal_size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: terminal_size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        // Under the lock that `restore` takes, so that nothing is drawn after the terminal is
        // restored.
        let ours = MODES_BEFORE.lock().unwrap_or_else(PoisonError::into_inner);
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
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcsetwinsize};
    use std::process::{Command, Stdio};

    #[test]
    fn only_the_key_q_ends_the_run() {
        assert_eq!(key_actions(b"x\x1b[Aq"), [KeyAction::Quit]);
        assert_eq!(key_actions(b"\x0c"), [KeyAction::Redraw]);
        assert_eq!(key_actions(b"\r\n yes"), []);
    }

    #[test]
    fn adjacent_cells_are_written_as_one_text() {
        let mut screen = Screen { pending: Vec::new(), has_keys: false };
        let mut cells = [Cell::new("a"), Cell::new("b"), Cell::new("c"), Cell::new("d")];
        cells[1].set_style(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        let [a, b, c, d] = &cells;
        screen.draw([(3, 0, a), (4, 0, b), (5, 0, c), (0, 2, d)].into_iter()).unwrap();
        let text = String::from_utf8(screen.pending).unwrap();
        assert_eq!(text, "\x1b[1;4Ha\x1b[0;1;31mb\x1b[0mc\x1b[3;1Hd");
    }

    /// Environment variable that makes the test below run on the terminal.
    const ON_TERMINAL: &str = "HANDOVER_TEST_ON_TERMINAL";

    #[test]
    fn panic_in_any_thread_restores_the_terminal_before_its_message() {
        if std::env::var_os(ON_TERMINAL).is_some() {
            assert!(is_closed());
            let _screen = Screen::enter(Size::new(20, 5)).expect("enter the screen");
            assert!(!is_closed());
            let other = std::thread::spawn(|| panic!("planted by the test"));
            assert!(other.join().is_err() && is_closed());
            return restore_terminal();
        }
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("open a pseudo-terminal");
        grantpt(&ours).expect("grant the pseudo-terminal");
        unlockpt(&ours).expect("unlock the pseudo-terminal");
        let name = ptsname(&ours, Vec::new()).expect("its name");
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
        let theirs = theirs.expect("open the other end of the pseudo-terminal");
        let size = Winsize { ws_row: 25, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).expect("its size");
        let modes = || {
            let it = tcgetattr(&theirs).expect("its modes");
            (it.local_modes, it.special_codes[SpecialCodeIndex::VSUSP])
        };
        let before = modes();
        let mut again = Command::new(std::env::current_exe().expect("find this program"));
        let name = std::thread::current().name().expect("this test").to_string();
        again.args(["--exact", &name, "--nocapture"]).env(ON_TERMINAL, "1").stdout(Stdio::null());
        again.stdin(Stdio::null()).stderr(theirs.try_clone().expect("an end"));
        let status = again.status().expect("run this program");
        assert!(status.success(), "{status}");
        assert!(modes() == before, "the terminal's modes were not restored");
        // The terminal may return it in several pieces.
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&bytes).contains("planted by the test") {
            let mut readable = [PollFd::new(&ours, PollFlags::IN)];
            let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
            assert_eq!(poll(&mut readable, Some(&limit)), Ok(1), "{}", bytes.escape_ascii());
            let count = rustix::io::read(&ours, &mut part).expect("read what it showed");
            bytes.extend_from_slice(&part[..count]);
        }
        let shown = String::from_utf8_lossy(&bytes);
        let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text:?} in {shown:?}"));
        assert!(
            at(ENTER_SEQUENCE) < at(LEAVE_SEQUENCE)
                && at(LEAVE_SEQUENCE) < at("planted by the test"),
            "{shown:?}"
        );
        assert_eq!(shown.matches(LEAVE_SEQUENCE).count(), 1, "{shown:?}");
    }
}
