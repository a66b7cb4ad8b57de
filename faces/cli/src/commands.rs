//! Commands of the lab.

pub mod anatomy;
pub mod bench;
pub mod compare;
pub mod doctor;
pub mod explain;
pub mod files;
pub mod fleet;
#[cfg(feature = "mpi")]
pub mod fleet_run;
pub mod history;
pub mod links;
pub mod list;
pub mod man;
pub mod names;
pub mod plot;
mod pool;
pub mod prove;
pub mod run;
pub mod serve;
pub mod stored;
pub mod sweep;
pub mod time;
pub mod trace;

/// Aligns the cells of lines in columns. The columns `left` and the last one are flush left, the
/// others flush right.
fn align_columns<const N: usize>(lines: &[[String; N]], left: &[usize]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let gap = if column == 0 { "" } else { "  " };
            match left.contains(&column) || column == N - 1 {
                true => row += &format!("{gap}{cell}{pad}"),
                false => row += &format!("{gap}{pad}{cell}"),
            }
        }
        text += row.trim_end();
        text.push('\n');
    }
    text
}
