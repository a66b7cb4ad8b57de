//! Folded stacks: `root;outer;inner NS`, one line per stack.

use super::sink::{Sink, put_number};
use crate::names::Names;
use crate::tree::CallTree;
use std::io::{self, Write};

pub fn write<W: Write>(tree: &CallTree, names: &Names, sink: &mut Sink<W>) -> io::Result<()> {
    tree.stacks(names, |stack, self_ns| {
        let to = sink.bytes();
        for (level, name) in stack.iter().enumerate() {
            if level > 0 {
                to.push(b';');
            }
            put_frame(to, name);
        }
        to.push(b' ');
        put_number(to, self_ns);
        to.push(b'\n');
        sink.flush_if_full()
    })
}

/// Appends a frame's name without semicolons and control characters, which would end a frame or a
/// line.
fn put_frame(to: &mut Vec<u8>, name: &str) {
    let kept = |c: char| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    };
    to.extend(name.chars().map(kept).collect::<String>().into_bytes());
}
