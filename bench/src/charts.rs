//! The plots of one load: throughput and latency over time, latency by percentile.
//!
//! Turns a report into series; `plot` draws them. Writes two files for `--svg`. Knows no load.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::files;
use crate::plot::{self, Axis, Panel, Scale, Series};
use crate::report::{Interval, Report};

/// The names of the two files.
const OVER_TIME: &str = "throughput.svg";
const BY_PERCENTILE: &str = "latency.svg";

/// Makes the folder if it is not there and tries whether the files can be written.
///
/// # Errors
/// If not.
pub(crate) fn try_out(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    [OVER_TIME, BY_PERCENTILE].iter().try_for_each(|name| files::try_out(&folder.join(name)).with_context(|| *name))
}

/// Writes `throughput.svg` and `latency.svg` into a folder, which is made if it is not there.
///
/// # Errors
/// If the folder cannot be made or a file not be written.
pub(crate) fn write(folder: &Path, report: &Report) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (name, text) in [(OVER_TIME, over_time(report)), (BY_PERCENTILE, by_percentile(report))] {
        fs::write(folder.join(name), text).with_context(|| name.to_owned())?;
    }
    Ok(())
}

fn title(report: &Report) -> String {
    let pace = report.offered_rate.map_or("closed loop".to_owned(), |rate| format!("open loop at {rate:.0}/s"));
    let label = report.label.as_ref().map(|label| format!("{label}: ")).unwrap_or_default();
    format!("{label}{}, {} connections x {}, {pace}", report.mix, report.connections, report.depth)
}

/// Throughput and the intervals' latency percentiles over the seconds of the window.
fn over_time(report: &Report) -> String {
    let series = |name: &str, colour: usize, figure: fn(&Interval) -> f64| {
        // An interval's figures stand in its middle.
        let point = |row: &Interval| (row.start + row.seconds / 2.0, figure(row));
        Series { name: name.to_owned(), colour, points: report.timeline.iter().map(point).collect() }
    };
    let throughput = Panel {
        title: "throughput".to_owned(),
        x: Axis::new("time, s", Scale::Linear),
        y: Axis::new("operations/s", Scale::Linear),
        series: vec![series("operations/s", 0, |row| row.throughput)],
    };
    let latency = Panel {
        title: "latency of each interval".to_owned(),
        x: Axis::new("time, s", Scale::Linear),
        y: Axis::new("latency, us", Scale::Log),
        series: vec![
            series("p50", 1, |row| row.p50_us),
            series("p99", 2, |row| row.p99_us),
            series("p99.9", 3, |row| row.p99_9_us),
        ],
    };
    plot::lines(&title(report), &[throughput, latency])
}

/// The share of the operations that took at most so long.
fn by_percentile(report: &Report) -> String {
    let point = |point: &crate::report::Percentile| (point.percent / 100.0, point.us);
    let below_all = report.percentiles.iter().filter(|point| point.percent < 100.0);
    let panel = Panel {
        title: "latency by percentile".to_owned(),
        x: Axis::new("share of the operations", Scale::Quantile),
        y: Axis::new("latency at most, us", Scale::Log),
        series: vec![Series { name: report.mix.clone(), colour: 0, points: below_all.map(point).collect() }],
    };
    plot::lines(&title(report), &[panel])
}
