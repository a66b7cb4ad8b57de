//! Explanations of shares that differ from those due by weight.

use super::SchedPlan;
use super::summary::{ResultRow, Share};

/// Relative deviation from the due share above which a note explains a client's share.
const DEVIATION_MIN: f64 = 0.05;
/// Minimum utilisation at which the link counts as full.
const FULL_LINK_UTILISATION: f64 = 0.95;

/// Returns lines that explain the column `due`, and each share that differs from the due share.
pub fn share_notes(plan: &SchedPlan, rows: &[ResultRow], seconds: f64) -> Vec<String> {
    let clients = &rows[..plan.threads() as usize];
    let shares: Vec<(usize, &ResultRow, Share)> =
        (0..).zip(clients).filter_map(|(thread, row)| Some((thread, row, row.share?))).collect();
    if shares.is_empty() {
        return Vec::new();
    }
    let mut lines =
        vec!["due: by the weights of a client's flows, while all flows have packets queued".into()];
    let is_off = |share: &Share| (share.obtained - share.due).abs() > DEVIATION_MIN * share.due;
    if !shares.iter().any(|(.., share)| is_off(share)) {
        return lines;
    }
    let bits = |row: &ResultRow| row.counts.transmitted_bytes as f64 * 8.0;
    let full = clients.iter().map(bits).sum::<f64>() / (plan.args.bandwidth.0 as f64 * seconds);
    if full < FULL_LINK_UTILISATION {
        lines.push(format!(
            "share: by what the clients offered, since the link was not full ({:.0} % of -b {})",
            full * 100.0,
            plan.args.bandwidth
        ));
        return lines;
    }
    for (thread, row, share) in &shares {
        if !is_off(share) || share.obtained > share.due {
            continue;
        }
        let flows_count = plan.flows_of(*thread as u32).flows_count();
        let queue = plan.args.queue;
        let emptied = match row.emptied_count {
            None => "which may have run out of packets".to_string(),
            Some(0) => "which never ran out of packets".to_string(),
            Some(times) => format!("which ran out of packets {times} times"),
        };
        lines.push(format!(
            "share: client {thread} has -q {queue} for {flows_count} flows, {emptied}; \
             longer queues (-q) or shorter intervals (-i, -c) keep them queued"
        ));
    }
    let queued = plan.args.queue * plan.args.threads;
    let packets: u64 = clients.iter().map(|row| row.counts.transmitted).sum();
    if queued as f64 > DEVIATION_MIN * packets as f64 {
        lines.push(format!(
            "share: up to {queued} of {packets} packets were queued when the time was over, and left \
             whatever their weights; a longer run counts them less"
        ));
    }
    lines
}
