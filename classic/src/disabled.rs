//! Stand-ins if the feature `programs` is off: there are no subcommands.

use clap::{ArgMatches, Command, Error, FromArgMatches, Subcommand};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;

/// Classic program with its arguments; without the feature `programs` the type has no values.
#[derive(Debug)]
pub enum Program {}

impl Program {
    /// Runs the program if the feature `programs` is on; cannot be called otherwise.
    ///
    /// # Errors
    /// None.
    pub fn run(&self, _out: &mut dyn Write) -> anyhow::Result<()> {
        match *self {}
    }

    /// Leaves the command line unchanged.
    pub fn move_scheduler_options(_words: &mut Vec<OsString>) {}
}

impl FromArgMatches for Program {
    fn from_arg_matches(_matches: &ArgMatches) -> Result<Self, Error> {
        Err(Error::raw(clap::error::ErrorKind::MissingSubcommand, "no subcommand is given\n"))
    }

    fn update_from_arg_matches(&mut self, _matches: &ArgMatches) -> Result<(), Error> {
        match *self {}
    }
}

impl Subcommand for Program {
    fn augment_subcommands(command: Command) -> Command {
        command
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        command
    }

    fn has_subcommand(_name: &str) -> bool {
        false
    }
}

/// Refuses to draw.
///
/// # Errors
/// Always: the programs are not part of this build.
pub fn plot_eventuals(_file: &Path, _prefix: &OsStr, _text: &mut String) -> anyhow::Result<()> {
    anyhow::bail!(
        "this program was built without the feature `classic` of handover (`programs` of handover-classic)"
    )
}
