//! `handover plot`: charts of a sweep.

use crate::app::StoreOption;
use crate::commands::files::{RunsFileContent, read_runs_file};
use crate::commands::{fleet, stored};
use crate::exit::{self, to_usage_error};
use clap::Args;
use handover_program::exit::UsageError;
use handover_program::{console, files};
use handover_record::Document;
use handover_report::compare::Rules;
use handover_report::fleet::Fleet;
use handover_report::svg::Chart;
use handover_store::Store;
use std::io::Write;
use std::path::Path;

/// Draw a sweep as SVG and PNG: medians with intervals, and rates with the fitted Universal
/// Scalability Law. Of a fleet, draw a dot for each node.
#[derive(Debug, Args)]
#[command(
    after_help = "The law is X(N) = γN / (1 + σ(N - 1) + κN(N - 1)): σ, contention, is the serial share of \
the work; κ, coherency, is the cost that each worker adds to every other. If κ is above 0, the rate has a peak, and \
more workers than that lower it (N. J. Gunther, Guerrilla Capacity Planning, 2007). It is fitted by least squares of \
the relative error to four values or more of an argument that counts those who share the work \
(threads_count, say), and refused where it is off by more than 20 %.\n\n\
FILE is what `handover export` or `handover show --json` has written, or a .dat file of \
sweep-abt-eventual-bench. For a fleet, the chart is NAME.nodes.svg and .png, and the table is that of `handover fleet`."
)]
pub struct PlotArgs {
    /// Run (id, prefix of an id, name, or position from the end: -1), or file
    #[arg(value_name = "RUN|FILE", allow_negative_numbers = true, default_value = "last")]
    source: String,
    /// Prefix of the charts' file names, or a folder for them [default: the name of the input file]
    #[arg(long, short = 'o', value_name = "PREFIX")]
    output: Option<String>,
    #[command(flatten)]
    db: StoreOption,
}

pub fn plot(args: &PlotArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let file = Path::new(&args.source);
    let is_file = std::fs::metadata(file).is_ok();
    let prefix = match (&args.output, is_file) {
        (Some(prefix), _) => separated_prefix(prefix),
        (None, true) => format!("{}.", args.source),
        (None, false) => String::new(),
    };
    let mut text = String::new();
    let documents = match is_file {
        true => match read_runs_file(file)? {
            RunsFileContent::Runs(documents) => documents,
            RunsFileContent::NoRuns => {
                let drawn = handover_classic::plot_eventuals(file, prefix.as_ref(), &mut text);
                return exit::print_and_join(drawn, &text, out);
            }
        },
        false => {
            let store = stored::open_existing(&args.db)?;
            if let Some(fleet) = load_fleet(&store, &args.source)? {
                let name = format!("{prefix}{}.nodes", fleet.name.replace('/', "-"));
                write_charts(&name, &fleet.chart(), &mut text)?;
                out.write_all(text.as_bytes())?;
                return fleet::print(&fleet, false, false, out);
            }
            vec![store.load_run(&args.source).map_err(stored::usage_error)?]
        }
    };
    let drawn = draw_sweeps(&documents, &prefix, &mut text).and_then(|count| match count {
        0 => Err(to_usage_error(format!(
            "{}: no figure was measured with several values of an argument; use `handover sweep`",
            args.source
        ))),
        _ => Ok(()),
    });
    // The charts are written first, as the reader of the output may have closed it.
    exit::print_and_join(drawn, &text, out)
}

/// Loads the selected fleet; `None` if the selected run belongs to none, or its fleet is of one
/// host.
fn load_fleet(store: &Store, selector: &str) -> anyhow::Result<Option<Fleet>> {
    let Ok(name) = fleet::fleet_name(store, selector) else { return Ok(None) };
    match fleet::load_fleet(store, &name, Rules::default()) {
        Ok(fleet) => Ok(Some(fleet)),
        Err(error) if error.is::<UsageError>() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the charts of all sweeps of the runs, and returns the number of sweeps. Adds the names of
/// the files and a table of each sweep to `text`.
fn draw_sweeps(documents: &[Document], prefix: &str, text: &mut String) -> anyhow::Result<usize> {
    let mut count = 0;
    for (place, document) in documents.iter().enumerate() {
        // Several runs in one file may have the same sweep.
        let prefix =
            if place == 0 { prefix.to_string() } else { format!("{prefix}{}.", place + 1) };
        for sweep in handover_report::find_sweeps(document) {
            let name = format!("{prefix}{}-by-{}", sweep.id.replace('/', "-"), sweep.argument);
            for (kind, chart) in [("median", sweep.figures_chart()), ("rate", sweep.rates_chart())]
            {
                write_charts(&format!("{name}.{kind}"), &chart, text)?;
            }
            *text += &sweep.render_text(console::output_width(), console::output_style(false));
            count += 1;
        }
    }
    Ok(count)
}

/// Appends `/` to the path of a folder, and `-` to another prefix that ends in a letter or digit.
fn separated_prefix(prefix: &str) -> String {
    match prefix.chars().last() {
        Some(last) if last != '/' && Path::new(prefix).is_dir() => format!("{prefix}/"),
        Some(last) if last.is_alphanumeric() => format!("{prefix}-"),
        _ => prefix.to_string(),
    }
}

/// Writes a chart as SVG and as PNG, and adds the names of the files to `text`.
fn write_charts(name: &str, chart: &Chart, text: &mut String) -> anyhow::Result<()> {
    write_chart(&format!("{name}.svg"), chart.to_standalone_svg().as_bytes(), text)?;
    write_chart(&format!("{name}.png"), &chart.to_png(), text)
}

/// Writes a chart file and adds its name to `text`.
fn write_chart(name: &str, bytes: &[u8], text: &mut String) -> anyhow::Result<()> {
    files::write_chart(Path::new(name), bytes)?;
    *text += &format!("{name}\n");
    Ok(())
}
