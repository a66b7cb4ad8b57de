//! Placeholder while the program is written beside.
use clap::Args;
use std::io::Write;
/// x
#[derive(Debug, Args)]
pub struct Calls {}
pub fn run(_: &Calls, _: &mut dyn Write) -> anyhow::Result<()> {
    Ok(())
}
