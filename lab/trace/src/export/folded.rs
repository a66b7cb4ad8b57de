//! Folded stacks: `root;outer;inner NS`, one line per stack.

use super::sink::{ExportBuffer, push_decimal};
use crate::names::SiteNames;
use crate::tree::CallTree;
use std::io::{self, Write};

/// Writes a line for each call stack. It has the functions, separated by semicolons, and the self
/// time in ns.
pub fn write_folded<W: Write>(
    tree: &CallTree,
    names: &SiteNames,
    sink: &mut ExportBuffer<W>,
) -> io::Result<()> {
    tree.for_each_stack(names, |stack, self_ns| {
        let to = sink.buffer_mut();
        for (level, name) in stack.iter().enumerate() {
            if level > 0 {
                to.push(b';');
            }
            put_frame(to, name);
        }
        to.push(b' ');
        push_decimal(to, self_ns);
        to.push(b'\n');
        sink.flush_if_full()
    })
}

/// Appends a function's name to a folded stack. Replaces semicolons and control characters, which
/// would end the name or the line.
fn put_frame(to: &mut Vec<u8>, name: &str) {
    let kept = |c: char| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    };
    to.extend(name.chars().map(kept).collect::<String>().into_bytes());
}
