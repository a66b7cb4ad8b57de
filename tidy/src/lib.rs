#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod lexer;
mod lists;
mod manifest;
pub mod rules;
mod source;
mod tree;
mod violation;

pub use lexer::{LexedSource, lex};
pub use lists::{ExceptionLists, Exemption, WORKSPACE_EXCEPTIONS};
pub use manifest::{Crate, Dependency, Manifest, ManifestEntry};
pub use source::{Source, words};
pub use tree::Tree;
pub use violation::Violation;

#[cfg(test)]
mod tests {
    mod planted;
    mod workspace;
}
