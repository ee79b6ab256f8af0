//! Plots as SVG files: lines over two axes, panels in rows of two, with one legend below.
//!
//! Draws with plotters. Figures are placed on an axis evenly, by powers of ten or by nines (50, 90, 99, 99.9 %). Knows no load;
//! `bench/compare` gives its panels as JSON.

use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use serde::Deserialize;

/// Size of a plot and of a row of panels in pixels.
const WIDTH: u32 = 1280;
const PANEL_HEIGHT: u32 = 400;
const LINE: u32 = 20;
const LEGEND_WIDTH: u32 = 210;
const NAMES_IN_LINE: u32 = (WIDTH - 60) / LEGEND_WIDTH;
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

/// A line: its name and its points.
type Series = (String, Vec<(f64, f64)>);
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// One pair of axes with its lines. An axis is a label, which names the unit, and how figures spread along it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: (String, Scale),
    pub(crate) y: (String, Scale),
    /// A name has the same colour in all panels.
    pub(crate) series: Vec<Series>,
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
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.panels.iter().flat_map(|panel| &panel.series) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let rows = self.panels.len().div_ceil(2);
        let below = LINE * (u32::try_from(names.len())?.div_ceil(NAMES_IN_LINE) + 1);
        let mut svg = String::new();
        let height = 2 * LINE + PANEL_HEIGHT * u32::try_from(rows)? + below;
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        self.draw(&root, &names, rows).map_err(|error| anyhow!("{}: {error}", self.title))?;
        drop(root);
        Ok(svg)
    }

    fn draw(&self, root: &Area<'_>, names: &[&str], rows: usize) -> Drawn {
        root.fill(&WHITE)?;
        root.draw(&Text::new(self.title.clone(), (16, 8), ("sans-serif", 18)))?;
        let (_, below) = root.split_vertically(2 * LINE);
        let (panels, legend) = below.split_vertically(PANEL_HEIGHT * u32::try_from(rows)?);
        for (panel, area) in self.panels.iter().zip(panels.split_evenly((rows, self.panels.len().min(2)))) {
            panel.draw(&area, names)?;
        }
        for (nth, name) in (0..).zip(names) {
            let across = i32::try_from(30 + LEGEND_WIDTH * (nth % NAMES_IN_LINE))?;
            let down = i32::try_from(10 + LINE * (nth / NAMES_IN_LINE))?;
            let style = colour(names, name).stroke_width(3);
            legend.draw(&PathElement::new(vec![(across, down + 6), (across + 26, down + 6)], style))?;
            legend.draw(&Text::new((*name).to_owned(), (across + 34, down), ("sans-serif", 15)))?;
        }
        root.present().map_err(Into::into)
    }
}

impl Panel {
    fn draw(&self, area: &Area<'_>, names: &[&str]) -> Drawn {
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let (x_scale, y_scale) = (&self.x.1, &self.y.1);
        let across = axis(x_scale, points().map(|(x, _)| *x));
        let up = axis(y_scale, points().map(|(_, y)| *y));
        let (Some(across), Some(up)) = (across, up) else {
            let text = format!("{}: no figures", self.title);
            return area.draw(&Text::new(text, (80, 40), ("sans-serif", 15))).map_err(Into::into);
        };
        let mut builder = ChartBuilder::on(area);
        builder.caption(&self.title, ("sans-serif", 16)).x_label_area_size(52);
        builder.y_label_area_size(if matches!(y_scale, Scale::Names(_)) { 140 } else { 78 });
        let mut chart = builder.margin_left(18).margin_right(34).build_cartesian_2d(across, up)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x.0).y_desc(&self.y.0).light_line_style(TRANSPARENT).label_style(("sans-serif", 14));
        let (x_label, y_label) = (|at: &f64| told(x_scale, *at), |at: &f64| told(y_scale, *at));
        mesh.x_label_formatter(&x_label).y_label_formatter(&y_label).draw()?;
        for (name, points) in &self.series {
            let place = |(x, y): &(f64, f64)| Some((along(x_scale, *x)?, along(y_scale, *y)?));
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

/// An axis on its scale's own measure ([`along`]).
struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
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

/// An axis that holds all figures. None if there is no figure that can be shown.
fn axis(scale: &Scale, figures: impl Iterator<Item = f64>) -> Option<Axis> {
    let shown: Vec<f64> = figures.filter_map(|figure| along(scale, figure)).collect();
    let low = shown.iter().copied().reduce(f64::min)?;
    let high = shown.iter().copied().reduce(f64::max)?;
    let fine = [0.0, 2_f64.log10(), 5_f64.log10()];
    let (low, high, ticks) = match scale {
        Scale::Linear => {
            // A step of 1, 2 or 5 times a power of ten.
            let least = if high > low.min(0.0) { (high - low.min(0.0)) / 5.0 } else { 1.0 };
            let decade = 10_f64.powf(least.log10().floor());
            let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= least).unwrap_or(10.0);
            let step = decade * factor;
            let (low, high) = ((low.min(0.0) / step).floor() * step, (high / step).ceil().max(1.0) * step);
            (low, high, steps(low, high, step, &fine[..1]))
        }
        Scale::Log => {
            let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
            (low, high, steps(low, high, 1.0, if high - low <= 3.0 { &fine } else { &fine[..1] }))
        }
        Scale::Quantile => (0.0, high.max(1.0), [&fine[..2], &steps(1.0, high, 1.0, &fine[..1])].concat()),
        Scale::Names(_) => (low - 0.5, high + 0.5, steps(low, high, 1.0, &fine[..1])),
    };
    Some(Axis { low, high, ticks })
}

/// From `low` to `high`, with these parts added to each step.
fn steps(low: f64, high: f64, step: f64, parts: &[f64]) -> Vec<f64> {
    let full = (0_u32..).map(|nth| low + f64::from(nth) * step).take_while(|at| *at <= high + step * 1e-6);
    let all = full.flat_map(|at| parts.iter().map(move |part| at + part));
    all.filter(|at| *at <= high + step * 1e-6).collect()
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
        let empty = Panel { series: vec![("none".to_owned(), vec![(1.0, f64::NAN)])], ..panel(Scale::Linear) };
        let panels = vec![panel(Scale::Log), panel(Scale::Linear), empty];
        let svg = Plot { file: PathBuf::new(), title: "get".to_owned(), panels }.svg().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}:\n{svg}"));
        let count = |tag: &str| document.descendants().filter(|node| node.has_tag_name(tag)).count();
        assert_eq!(count("circle"), 5 + 6, "no zero on a logarithmic axis");
        for text in
            ["a &lt;title&gt; &amp; more", "one &amp; only", "latency, us", "50 %", "99.9 %", "100", "1k", "no figures"]
        {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
    }
}
