#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod lexer;
mod lists;
mod manifest;
pub mod rules;
mod source;
mod tree;
mod violation;

pub use lexer::{Lexed, lex};
pub use lists::{Exemption, Lists, WORKSPACE};
pub use manifest::{Crate, Dependency, Entry, Manifest};
pub use source::{Source, words};
pub use tree::Tree;
pub use violation::Violation;

#[cfg(test)]
mod tests {
    mod planted;
    mod workspace;
}
