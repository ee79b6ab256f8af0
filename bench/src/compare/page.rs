//! The report page of a comparison: Markdown with tables and the plots beside it, made from the raw runs alone.
//!
//! The page can be made again from `results.jsonl` at any time. Writes files; knows no server and no socket.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::cell::Cell;
use super::figures::{Figure, Run, Runs, Spread};
use crate::plot::{self, Axis, Bar, BarGroup, Panel, Scale, Series};

/// A sweep needs at least this many numbers of connections to be drawn.
const SWEEP_POINTS_MIN: usize = 3;

/// What the page is about.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    /// The command that made it, without directories.
    pub(super) command: &'a str,
    pub(super) servers: &'a [String],
    pub(super) cells: &'a [Cell],
    /// Servers whose CPU time the others' is divided by.
    pub(super) against: &'a [String],
    pub(super) runs: &'a [Run],
    pub(super) failures: &'a [String],
}

impl Page<'_> {
    /// Writes `report.md` and `plots/*.svg` into a directory, and gives the Markdown.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub(super) fn write(&self, directory: &Path) -> Result<String> {
        let plots = directory.join("plots");
        fs::create_dir_all(&plots).with_context(|| plots.display().to_string())?;
        let mut text = self.head();
        let draw = |name: &str, what: &str, svg: String, text: &mut String| {
            let path = plots.join(format!("{name}.svg"));
            // Writing to a String cannot fail.
            let _ = write!(text, "![{what}](plots/{name}.svg)\n\n");
            fs::write(&path, svg).with_context(|| path.display().to_string())
        };
        if let Some(svg) = self.cpu_bars() {
            draw("cpu", "Server CPU per operation", svg, &mut text)?;
        }
        for (name, svg) in self.sweeps() {
            draw(&format!("scaling-{}", file_name(&name)), &format!("Scaling of {name}"), svg, &mut text)?;
        }
        for cell in self.cells {
            self.table(cell, &mut text);
            if let Some(svg) = self.curves(cell) {
                draw(&cell.file_name(), &format!("Latency and throughput of {}", cell.name), svg, &mut text)?;
            }
        }
        self.foot(&mut text);
        let path = directory.join("report.md");
        fs::write(&path, &text).with_context(|| path.display().to_string())?;
        Ok(text)
    }

    fn runs(&self) -> Runs<'_> {
        Runs(self.runs)
    }

    fn head(&self) -> String {
        let mut text = format!("# {}\n\n    {}\n\n", self.title, self.command);
        let Some(first) = self.runs.first() else { return text };
        let machine = &first.report["machine"];
        let word = |name: &str| machine[name].as_str().unwrap_or("unknown");
        let rounds = self.runs.iter().map(|run| run.round).max().unwrap_or(0);
        let (cpu, kernel, congestion) = (word("cpu"), word("kernel"), word("congestion"));
        let cpus = &machine["cpus"];
        let _ =
            writeln!(text, "{cpu}, {cpus} CPUs, kernel {kernel}, TCP {congestion}; {rounds} rounds, rotating order.\n");
        let by_round = |pick: &dyn Fn(&Run) -> Option<f64>| {
            let of_round = |round| self.runs.iter().find(|run| run.round == round).and_then(pick);
            let figures = (1..=rounds).filter_map(of_round);
            figures.map(|figure| format!("{figure:.1}")).collect::<Vec<_>>().join(", ")
        };
        let p50 = by_round(&|run| Some(run.fdatasync?.p50_us));
        let p99 = by_round(&|run| Some(run.fdatasync?.p99_us));
        let load = by_round(&|run| run.load_average);
        let _ = writeln!(text, "fdatasync after an append of 512 B, by round: p50 {p50} us, p99 {p99} us.");
        let _ = writeln!(text, "Load average before each round (our own included): {load}.\n");
        text
    }

    fn table(&self, cell: &Cell, text: &mut String) {
        let runs = self.runs();
        let against: Vec<&String> =
            self.against.iter().filter(|name| runs.spread(name, &cell.name, Figure::Cpu).is_some()).collect();
        let mut head: Vec<String> = vec!["server".to_owned()];
        head.extend(Figure::ALL.map(|figure| figure.title().to_owned()));
        head.extend(against.iter().map(|name| format!("CPU x {name}")));
        let _ = writeln!(text, "## {}\n\n`{}`\n", capital(&cell.title()), cell.name);
        let _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
        for server in self.servers {
            if runs.of(server, &cell.name).next().is_none() {
                continue;
            }
            let mut row = vec![server.clone()];
            for figure in Figure::ALL {
                row.push(with_spread(runs.spread(server, &cell.name, figure), figure.digits()));
            }
            for other in &against {
                let ratio = runs.ratio(server, other, &cell.name, Figure::Cpu);
                row.push(ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")));
            }
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        for remark in self.remarks(&cell.name) {
            let _ = writeln!(text, "\n{remark}");
        }
        text.push('\n');
    }

    /// What the load generator remarked, once for each server.
    fn remarks(&self, cell: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for run in self.runs.iter().filter(|run| run.cell == cell) {
            let remarks = run.report["remarks"].as_array().into_iter().flatten();
            for remark in remarks.filter_map(serde_json::Value::as_str) {
                let line = format!("- {}: {remark}", run.server);
                if !found.contains(&line) {
                    found.push(line);
                }
            }
        }
        found
    }

    fn cpu_bars(&self) -> Option<String> {
        let runs = self.runs();
        let group = |cell: &Cell| {
            let bar = |(colour, server): (usize, &String)| {
                let spread = runs.spread(server, &cell.name, Figure::Cpu)?;
                let Spread { median: value, smallest: low, largest: high } = spread;
                Some(Bar { name: server.clone(), colour, value, low, high })
            };
            let bars: Vec<Bar> = self.servers.iter().enumerate().filter_map(bar).collect();
            (!bars.is_empty()).then(|| BarGroup { title: cell.name.clone(), bars })
        };
        let groups: Vec<BarGroup> = self.cells.iter().filter_map(group).collect();
        (!groups.is_empty()).then(|| plot::bars("Server CPU per operation", "us per operation", &groups))
    }

    fn curves(&self, cell: &Cell) -> Option<String> {
        let runs = self.runs();
        let series = |curve: &dyn Fn(&str) -> Vec<(f64, f64)>| -> Vec<Series> {
            let of = |(colour, name): (usize, &String)| Series { name: name.clone(), colour, points: curve(name) };
            self.servers.iter().enumerate().map(of).filter(|series| !series.points.is_empty()).collect()
        };
        let latency = series(&|server| runs.percentiles(server, &cell.name));
        let throughput = series(&|server| runs.timeline(server, &cell.name));
        if latency.is_empty() && throughput.is_empty() {
            return None;
        }
        let panels = [
            Panel {
                title: "latency, median over the rounds".to_owned(),
                x: Axis::new("share of the operations", Scale::Quantile),
                y: Axis::new("latency at most, us", Scale::Log),
                series: latency,
            },
            Panel {
                title: "throughput of the median round".to_owned(),
                x: Axis::new("time, s", Scale::Linear),
                y: Axis::new("operations/s", Scale::Log),
                series: throughput,
            },
        ];
        Some(plot::lines(&capital(&cell.title()), &panels))
    }

    /// The scaling curves: name of the sweep and the plot.
    fn sweeps(&self) -> Vec<(String, String)> {
        let mut names: Vec<String> = Vec::new();
        for name in self.cells.iter().filter_map(Cell::sweep) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let all = names.into_iter().filter_map(|name| {
            let mut cells: Vec<&Cell> = self.cells.iter().filter(|cell| cell.sweep().as_ref() == Some(&name)).collect();
            cells.sort_by_key(|cell| cell.connections);
            cells.dedup_by_key(|cell| cell.connections);
            (cells.len() >= SWEEP_POINTS_MIN).then(|| (name.clone(), self.scaling(&name, &cells)))
        });
        all.collect()
    }

    fn scaling(&self, name: &str, cells: &[&Cell]) -> String {
        let runs = self.runs();
        let panel = |title: &str, label: &str, figure: Figure| Panel {
            title: title.to_owned(),
            x: Axis::new("connections", Scale::Log),
            y: Axis::new(label, Scale::Log),
            series: (self.servers.iter().enumerate())
                .map(|(colour, server)| Series {
                    name: server.clone(),
                    colour,
                    points: cells
                        .iter()
                        .filter_map(|cell| {
                            let median = runs.spread(server, &cell.name, figure)?.median;
                            Some((f64::from(cell.connections), median))
                        })
                        .collect(),
                })
                .collect(),
        };
        let panels = [
            panel("throughput", "operations/s", Figure::Throughput),
            panel("99th percentile of latency", "latency, us", Figure::P99),
        ];
        plot::lines(&format!("Scaling with the number of connections: {name}"), &panels)
    }

    fn foot(&self, text: &mut String) {
        text.push_str(
            "Medians of the rounds, smallest..largest in brackets. Every run with its exact command: `results.jsonl`.\n",
        );
        let mut commands: Vec<String> = Vec::new();
        for run in self.runs {
            let Some(command) = &run.server_command else { continue };
            let line = format!("- {}: `{command}`", run.server);
            if !commands.iter().any(|told| told.starts_with(&format!("- {}: ", run.server))) {
                commands.push(line);
            }
        }
        if !commands.is_empty() {
            let _ = write!(text, "\n{}\n", commands.join("\n"));
        }
        for failure in self.failures {
            let _ = write!(text, "\nFAILED: {failure}\n");
        }
    }
}

fn with_spread(spread: Option<Spread>, digits: usize) -> String {
    let Some(Spread { median, smallest, largest }) = spread else { return "-".to_owned() };
    let shown = |figure: f64| with_commas(&format!("{figure:.digits$}"));
    format!("{} [{}..{}]", shown(median), shown(smallest), shown(largest))
}

/// Thousands apart: 1,234,567.8.
fn with_commas(number: &str) -> String {
    let (whole, rest) = number.split_once('.').unwrap_or((number, ""));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    if rest.is_empty() { out } else { format!("{out}.{rest}") }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn file_name(text: &str) -> String {
    let kept: String = text.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect();
    kept.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::run;
    use super::*;

    #[test]
    fn numbers_have_their_thousands_apart() {
        fn check(text: &str, expect: &str) {
            assert_eq!(with_commas(text), expect);
        }
        check("0", "0");
        check("999", "999");
        check("1000", "1,000");
        check("1234567.89", "1,234,567.89");
        check("0.627", "0.627");
        check("-1234", "-1,234");
    }

    #[test]
    fn the_page_holds_medians_ratios_plots_and_failures() {
        let cells: Vec<Cell> =
            ["get:1x1", "get:8x1", "get:64x1", "set:64x16"].map(|text| Cell::of(text).unwrap()).into();
        let mut runs = Vec::new();
        for cell in &cells {
            for (round, cpu) in [(1, 1.0), (2, 3.0), (3, 2.0)] {
                runs.push(run("fast", &cell.name, round, cpu, 1_000_000.0));
                runs.push(run("slow", &cell.name, round, cpu * 10.0, 2_000.0));
            }
        }
        let servers = ["fast".to_owned(), "slow".to_owned()];
        let directory = tempfile::tempdir().unwrap();
        let page = Page {
            title: "A title",
            command: "corral-bench compare ...",
            servers: &servers,
            cells: &cells,
            against: &servers[1..],
            runs: &runs,
            failures: &["slow fell over".to_owned()],
        };
        let text = page.write(directory.path()).unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("report.md")).unwrap(), text);
        let row = "| fast | 2.000 [1.000..3.000] | 1,000,000 [1,000,000..1,000,000] | 20 [10..30] ";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| 0.10 |"), "{text}");
        assert!(text.contains("FAILED: slow fell over"));
        for name in ["cpu", "scaling-get-depth-1", "get-1x1", "get-8x1", "get-64x1", "set-64x16"] {
            let svg = fs::read_to_string(directory.path().join(format!("plots/{name}.svg"))).unwrap();
            roxmltree::Document::parse(&svg).unwrap();
            assert!(text.contains(&format!("(plots/{name}.svg)")), "{name}");
        }
        let scaling = fs::read_to_string(directory.path().join("plots/scaling-get-depth-1.svg")).unwrap();
        assert_eq!(scaling.matches("<circle class=\"s0\"").count(), 2 * 3, "three points in each of two panels");
    }
}
