//! Placeholder while the program is written beside.
use clap::Args;
use std::io::Write;
/// x
#[derive(Debug, Args)]
pub struct NodeMicrobench {}
pub fn run(_: &NodeMicrobench, _: &mut dyn Write) -> anyhow::Result<()> {
    Ok(())
}
