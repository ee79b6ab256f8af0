//! Plots as SVG files: lines over two axes, two panels in a row, with one legend below.
//!
//! Draws with plotters. Figures are placed on an axis evenly, by powers of ten or by nines (50, 90, 99, 99.9 %). Knows no load;
//! `bench/compare` gives its panels as JSON.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use serde::Deserialize;

/// Size of a panel in pixels, with its labels.
const PANEL: (u32, u32) = (640, 400);
const COLUMNS_MAX: u32 = 2;
const LINE: u32 = 20;
const LEGEND_WIDTH: u32 = 210;
/// About this many letters of the title fit into a panel's width.
const PANEL_LETTERS: usize = 84;
/// Points of one line above which they are not marked one by one.
const MARKED_POINTS_MAX: usize = 60;
/// Quantiles end here: no run has samples for more.
const QUANTILE_MAX: f64 = 0.999_999_9;
const COLOURS: [RGBColor; 8] = [
    RGBColor(31, 95, 191),
    RGBColor(194, 87, 12),
    RGBColor(26, 127, 75),
    RGBColor(138, 63, 181),
    RGBColor(168, 23, 78),
    RGBColor(11, 122, 140),
    RGBColor(122, 92, 0),
    RGBColor(85, 95, 107),
];

/// How figures spread along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    /// From zero, evenly.
    Linear,
    /// By powers of ten; figures up to zero are left out.
    Log,
    /// Quantiles from 0 to 1, each further nine as wide as the one before.
    Quantile,
    /// The places of these names, from 0.
    Names(Vec<String>),
}

/// One pair of axes with its lines. An axis is a label, which names the unit, and how figures spread along it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: (String, Scale),
    pub(crate) y: (String, Scale),
    /// Names and points; a name has the same colour in all panels.
    pub(crate) series: Vec<(String, Vec<(f64, f64)>)>,
}

/// One file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Plot {
    pub(crate) file: PathBuf,
    pub(crate) title: String,
    pub(crate) panels: Vec<Panel>,
}

/// Draws the plots that standard input describes, as a list of JSON objects.
pub(crate) fn draw_from_stdin() -> Result<()> {
    let plots: Vec<Plot> = serde_json::from_reader(io::stdin().lock()).context("standard input is no list of plots")?;
    plots.iter().try_for_each(Plot::write)
}

impl Plot {
    pub(crate) fn write(&self) -> Result<()> {
        fs::write(&self.file, self.svg()?).with_context(|| self.file.display().to_string())
    }

    fn svg(&self) -> Result<String> {
        let panels = u32::try_from(self.panels.len())?;
        let columns = panels.clamp(1, COLUMNS_MAX);
        let rows = panels.div_ceil(columns);
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.panels.iter().flat_map(|panel| &panel.series) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let title = wrapped(&self.title, PANEL_LETTERS * columns as usize);
        let head = LINE * (u32::try_from(title.len())? + 1);
        let per_row = (PANEL.0 * columns - 60) / LEGEND_WIDTH;
        let legend = LINE * (u32::try_from(names.len())?.div_ceil(per_row) + 1);
        let (width, height) = (PANEL.0 * columns, head + PANEL.1 * rows + legend);
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        self.draw(&root, &names, &title, (rows, columns, per_row))
            .map_err(|error| anyhow!("{}: {error}", self.title))?;
        drop(root);
        Ok(svg)
    }

    fn draw(
        &self,
        root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        names: &[&str],
        title: &[String],
        (rows, columns, per_row): (u32, u32, u32),
    ) -> Result<(), Box<dyn std::error::Error>> {
        root.fill(&WHITE)?;
        let at = |across: u32, down: u32| -> Result<(i32, i32)> { Ok((i32::try_from(across)?, i32::try_from(down)?)) };
        for (line, text) in (0..).zip(title) {
            root.draw(&Text::new(text.clone(), at(16, 8 + LINE * line)?, ("sans-serif", 18)))?;
        }
        let (_, below) = root.split_vertically(LINE * (u32::try_from(title.len())? + 1));
        let (panels, legend) = below.split_vertically(PANEL.1 * rows);
        for (panel, area) in self.panels.iter().zip(panels.split_evenly((rows as usize, columns as usize))) {
            panel.draw(&area, names)?;
        }
        for (nth, name) in (0..).zip(names) {
            let (across, down) = at(30 + LEGEND_WIDTH * (nth % per_row), 10 + LINE * (nth / per_row))?;
            let style = colour(names, name).stroke_width(3);
            legend.draw(&PathElement::new(vec![(across, down + 6), (across + 26, down + 6)], style))?;
            legend.draw(&Text::new((*name).to_owned(), (across + 34, down), ("sans-serif", 15)))?;
        }
        root.present().map_err(Into::into)
    }
}

impl Panel {
    fn draw(
        &self,
        area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
        names: &[&str],
    ) -> Result<(), Box<dyn std::error::Error>> {
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let across = axis(&self.x.1, points().map(|(x, _)| *x));
        let up = axis(&self.y.1, points().map(|(_, y)| *y));
        let (Some(across), Some(up)) = (across, up) else {
            let (text, place) = (format!("{}: no figures", self.title), (80, 40));
            return area.draw(&Text::new(text, place, ("sans-serif", 15))).map_err(Into::into);
        };
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.title, ("sans-serif", 16)).x_label_area_size(52);
        builder.y_label_area_size(if matches!(self.y.1, Scale::Names(_)) { 140 } else { 78 });
        let mut chart = builder.margin_left(18).margin_right(34).build_cartesian_2d(across, up)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x.0).y_desc(&self.y.0);
        mesh.label_style(("sans-serif", 14)).light_line_style(TRANSPARENT).draw()?;
        for (name, points) in &self.series {
            let place = |(x, y): &(f64, f64)| Some((along(&self.x.1, *x)?, along(&self.y.1, *y)?));
            let placed: Vec<(f64, f64)> = points.iter().filter_map(place).collect();
            let colour = colour(names, name);
            if placed.len() <= MARKED_POINTS_MAX {
                chart.draw_series(placed.iter().map(|at| Circle::new(*at, 3, colour.filled())))?;
            }
            chart.draw_series([PathElement::new(placed, colour.stroke_width(2))])?;
        }
        Ok(())
    }
}

fn colour(names: &[&str], name: &str) -> RGBColor {
    COLOURS[names.iter().position(|known| *known == name).unwrap_or(0) % COLOURS.len()]
}

/// The text in lines of at most so many letters, broken between words.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive([' ', ',']) {
        let last = lines.last_mut().expect("never empty");
        if last.len() + word.len() > letters && !last.is_empty() {
            lines.push(word.to_owned());
        } else {
            last.push_str(word);
        }
    }
    lines
}

/// An axis on its scale's own measure, see [`along`].
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[allow(clippy::cast_possible_truncation)]
    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        (f64::from(from) + share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        told(&self.scale, *value)
    }
}

/// An axis that holds all figures, with its ticks. None if there is no figure that can be shown.
fn axis(scale: &Scale, figures: impl Iterator<Item = f64>) -> Option<Axis> {
    let shown: Vec<f64> = figures.filter_map(|figure| along(scale, figure)).collect();
    let low = shown.iter().copied().reduce(f64::min)?;
    let high = shown.iter().copied().reduce(f64::max)?;
    let (low, high, ticks) = match scale {
        Scale::Linear => {
            let step = nice_step((high - low.min(0.0)) / 5.0);
            let (low, high) = ((low.min(0.0) / step).floor() * step, (high / step).ceil().max(1.0) * step);
            (low, high, steps(low, high, step))
        }
        Scale::Log => {
            let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
            let fine = [0.0, 2_f64.log10(), 5_f64.log10()];
            let parts = if high - low <= 3.0 { &fine[..] } else { &fine[..1] };
            let decades = steps(low, high, 1.0).into_iter();
            let ticks = decades.flat_map(|decade| parts.iter().map(move |part| decade + part));
            (low, high, ticks.filter(|at| *at <= high + 1e-9).collect())
        }
        Scale::Quantile => {
            (0.0, high.max(1.0), [0.0, 2_f64.log10()].into_iter().chain(steps(1.0, high, 1.0)).collect())
        }
        Scale::Names(_) => (low - 0.5, high + 0.5, steps(low, high, 1.0)),
    };
    Some(Axis { scale: scale.clone(), low, high, ticks })
}

fn steps(low: f64, high: f64, step: f64) -> Vec<f64> {
    (0_u32..).map(|nth| low + f64::from(nth) * step).take_while(|at| *at <= high + step * 1e-6).collect()
}

/// 1, 2 or 5 times a power of ten, not below.
fn nice_step(step: f64) -> f64 {
    if step <= 0.0 || !step.is_finite() {
        return 1.0;
    }
    let decade = 10_f64.powf(step.log10().floor());
    decade * [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= step * (1.0 - 1e-9)).unwrap_or(10.0)
}

/// The figure on the axis' own measure.
fn along(scale: &Scale, figure: f64) -> Option<f64> {
    let value = match scale {
        Scale::Linear | Scale::Names(_) => figure,
        Scale::Log if figure > 0.0 => figure.log10(),
        Scale::Log => return None,
        Scale::Quantile => -(1.0 - figure.clamp(0.0, QUANTILE_MAX)).log10(),
    };
    value.is_finite().then_some(value)
}

/// The text of a tick.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn told(scale: &Scale, at: f64) -> String {
    match scale {
        Scale::Linear => short(at),
        Scale::Log => short(10_f64.powf(at)),
        Scale::Quantile => format!("{} %", trimmed(100.0 - 10_f64.powf(2.0 - at), 5)),
        Scale::Names(names) => names.get(at.round() as usize).cloned().unwrap_or_default(),
    }
}

/// Three digits and a letter: 0.62, 64, 1.2k, 1.57M.
fn short(figure: f64) -> String {
    let scales = [(999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (999.5, 1e3, "k")];
    let found = scales.into_iter().find(|(least, ..)| figure.abs() >= *least);
    let (_, divisor, letter) = found.unwrap_or((0.0, 1.0, ""));
    format!("{}{letter}", trimmed(figure / divisor, 2 + usize::from(figure.abs() < 0.1)))
}

fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Tries whether a file can be written, before a run instead of after it. Leaves no trace.
pub(crate) fn try_out(path: &Path) -> io::Result<()> {
    let there = fs::metadata(path);
    // A pipe would be closed towards its reader, and a device says nothing by being opened.
    if there.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    fs::OpenOptions::new().append(true).create(true).open(path)?;
    if there.is_err() { fs::remove_file(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_is_xml_with_every_point_label_and_name() {
        let panel = |y: Scale| Panel {
            title: "a <title> & more".to_owned(),
            x: ("share".to_owned(), Scale::Quantile),
            y: ("latency, us".to_owned(), y),
            series: vec![
                ("one & only".to_owned(), vec![(0.0, 10.0), (0.5, 20.0), (0.99, 90.0), (0.999, 1000.0)]),
                ("two".to_owned(), vec![(0.5, 2.0), (0.9, 0.0)]),
            ],
        };
        let title = "get=80,set=15,create=3,delete=2, ".repeat(9);
        let plot = Plot { file: PathBuf::new(), title, panels: vec![panel(Scale::Log), panel(Scale::Linear)] };
        let svg = plot.svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}:\n{svg}"));
        let count = |tag: &str| document.descendants().filter(|node| node.has_tag_name(tag)).count();
        assert_eq!(count("circle"), 5 + 6, "no zero on a logarithmic axis");
        let texts: Vec<&str> = document
            .descendants()
            .filter(|of| of.has_tag_name("text"))
            .filter_map(|of| of.text())
            .map(str::trim)
            .collect();
        for text in
            ["a <title> & more", "one & only", "two", "latency, us", "50 %", "99.9 %", "100", "1k", "0", "share"]
        {
            assert!(texts.contains(&text), "{text} is not in {texts:?}");
        }
        assert!(texts.iter().all(|text| text.len() <= 2 * PANEL_LETTERS), "a long title has several lines");
        let empty = Panel { series: vec![("none".to_owned(), vec![(1.0, f64::NAN)])], ..panel(Scale::Linear) };
        let empty = Plot { panels: vec![empty], ..plot }.svg().unwrap();
        assert!(empty.contains("no figures"), "{empty}");
    }

    #[test]
    fn a_trial_leaves_no_trace() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("old"), directory.path().join("new"));
        fs::write(&old, "as it was").unwrap();
        try_out(&old).unwrap();
        try_out(&new).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "as it was");
        assert!(!new.exists() && try_out(Path::new("/dev/null")).is_ok());
        assert!(try_out(directory.path()).is_err() && try_out(&old.join("below a file")).is_err());
    }
}
