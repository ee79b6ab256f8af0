//! Plots of one load, as SVG files that read well in light and dark: lines over an axis.
//!
//! Pure: figures in, text out. Written by hand because a plotting library writes fixed colours into every shape
//! (`docs/decisions/0003-dependencies.md`). Knows nothing of servers; a series is a name, a colour and points.

mod axis;
mod svg;

use axis::{Range, short};
use svg::{Anchor, Svg, series_class};

pub(crate) use axis::{Axis, Scale};

/// Points of one line above which they are not marked one by one.
const MARKED_POINTS_MAX: usize = 60;

const PANEL_WIDTH: f64 = 560.0;
const PANEL_HEIGHT: f64 = 300.0;
const MARGIN_LEFT: f64 = 74.0;
const MARGIN_RIGHT: f64 = 20.0;
const MARGIN_TOP: f64 = 66.0;
const MARGIN_BOTTOM: f64 = 50.0;
const LEGEND_ROW: f64 = 20.0;
const LEGEND_WIDTH: f64 = 186.0;

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// As in the legend.
    pub(crate) name: String,
    /// The number of its colour; the same name has the same in all plots.
    pub(crate) colour: usize,
    /// Figures along the axes.
    pub(crate) points: Vec<(f64, f64)>,
}

/// One pair of axes with its lines.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    /// Above the panel.
    pub(crate) title: String,
    /// Along the bottom.
    pub(crate) x: Axis,
    /// Along the left.
    pub(crate) y: Axis,
    /// The lines; those without points are named in the legend all the same.
    pub(crate) series: Vec<Series>,
}

/// Panels side by side with one legend below.
#[must_use]
pub(crate) fn lines(title: &str, panels: &[Panel]) -> String {
    let names = legend_names(panels);
    let columns = panels.len().max(1);
    let width = PANEL_WIDTH * as_f64(columns);
    let fits = |count: &usize| as_f64(*count) * LEGEND_WIDTH <= width - 40.0;
    let per_row = (1..=names.len()).rev().find(fits).unwrap_or(1);
    let rows = names.len().div_ceil(per_row);
    let height = MARGIN_TOP + PANEL_HEIGHT + MARGIN_BOTTOM + LEGEND_ROW * as_f64(rows) + 10.0;
    let mut svg = Svg::new(width, height, title);
    svg.text("title", Anchor::Start, 16.0, 24.0, title);
    for (at, panel) in panels.iter().enumerate() {
        draw_panel(&mut svg, panel, PANEL_WIDTH * as_f64(at));
    }
    for (at, (name, colour)) in names.iter().enumerate() {
        let x = 24.0 + LEGEND_WIDTH * as_f64(at % per_row);
        let y = MARGIN_TOP + PANEL_HEIGHT + MARGIN_BOTTOM + LEGEND_ROW * as_f64(at / per_row) + 4.0;
        svg.line(&format!("s {}", series_class(*colour)), (x, y), (x + 26.0, y));
        svg.text("label", Anchor::Start, x + 32.0, y + 4.0, name);
    }
    svg.finish()
}

fn legend_names(panels: &[Panel]) -> Vec<(String, usize)> {
    let mut names: Vec<(String, usize)> = Vec::new();
    for series in panels.iter().flat_map(|panel| &panel.series) {
        if !names.iter().any(|(name, _)| *name == series.name) {
            names.push((series.name.clone(), series.colour));
        }
    }
    names
}

fn draw_panel(svg: &mut Svg, panel: &Panel, left: f64) {
    let (x0, x1) = (left + MARGIN_LEFT, left + PANEL_WIDTH - MARGIN_RIGHT);
    let (y0, y1) = (MARGIN_TOP + PANEL_HEIGHT, MARGIN_TOP);
    svg.text("label", Anchor::Start, x0, y1 - 12.0, &panel.title);
    svg.text("label", Anchor::Middle, f64::midpoint(x0, x1), y0 + 36.0, &panel.x.label);
    svg.upright("label", left + 18.0, f64::midpoint(y0, y1), &panel.y.label);
    let all = || panel.series.iter().flat_map(|series| series.points.iter().copied());
    let x_range = Range::of(panel.x.scale, all().map(|(x, _)| x));
    let y_range = Range::of(panel.y.scale, all().map(|(_, y)| y));
    let (Some(x_range), Some(y_range)) = (x_range, y_range) else {
        svg.text("label", Anchor::Middle, f64::midpoint(x0, x1), f64::midpoint(y0, y1), "no figures");
        return;
    };
    for (share, text) in x_range.ticks() {
        let x = x0 + share * (x1 - x0);
        svg.line("grid", (x, y0), (x, y1));
        svg.text("tick", Anchor::Middle, x, y0 + 16.0, &text);
    }
    for (share, text) in y_range.ticks() {
        let y = y0 + share * (y1 - y0);
        svg.line("grid", (x0, y), (x1, y));
        svg.text("tick", Anchor::End, x0 - 6.0, y + 4.0, &text);
    }
    svg.line("axis", (x0, y0), (x1, y0));
    svg.line("axis", (x0, y0), (x0, y1));
    for series in &panel.series {
        let class = series_class(series.colour);
        let placed: Vec<((f64, f64), (f64, f64))> = series
            .points
            .iter()
            .filter_map(|(x, y)| {
                let at = (x_range.share(*x)?, y_range.share(*y)?);
                Some(((x0 + at.0 * (x1 - x0), y0 + at.1 * (y1 - y0)), (*x, *y)))
            })
            .collect();
        let places: Vec<(f64, f64)> = placed.iter().map(|(place, _)| *place).collect();
        svg.polyline(&class, &places);
        if placed.len() <= MARKED_POINTS_MAX {
            for (place, (x, y)) in &placed {
                svg.point(&class, *place, &format!("{}: {} at {}", series.name, short(*y), short(*x)));
            }
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, colour: usize, points: &[(f64, f64)]) -> Series {
        Series { name: name.to_owned(), colour, points: points.to_vec() }
    }

    /// Parses the file, which must be XML without a flaw, and counts the elements of a kind and class.
    fn count(svg: &str, tag: &str, class: &str) -> usize {
        let document = roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{error}:\n{svg}"));
        let fits = |node: &roxmltree::Node<'_, '_>| node.has_tag_name(tag) && node.attribute("class") == Some(class);
        document.descendants().filter(fits).count()
    }

    fn polyline_points(svg: &str, class: &str) -> usize {
        let document = roxmltree::Document::parse(svg).unwrap();
        let found =
            document.descendants().find(|node| node.has_tag_name("polyline") && node.attribute("class") == Some(class));
        found.unwrap().attribute("points").unwrap().split(' ').filter(|place| place.contains(',')).count()
    }

    #[test]
    fn every_point_of_every_line_is_drawn() {
        let percentiles = Panel {
            title: "a <title> & more".to_owned(),
            x: Axis::new("percentile", Scale::Quantile),
            y: Axis::new("latency, us", Scale::Log),
            series: vec![
                series("one & only", 0, &[(0.0, 10.0), (0.5, 20.0), (0.99, 90.0), (1.0, 1000.0)]),
                series("two", 3, &[(0.5, 2.0), (0.9, 0.0)]),
            ],
        };
        let svg = lines("latency", &[percentiles.clone(), percentiles]);
        assert_eq!(count(&svg, "circle", "s0"), 2 * 4);
        assert_eq!(count(&svg, "circle", "s3"), 2, "no zero on a logarithmic axis");
        assert_eq!(polyline_points(&svg, "s0"), 4);
        assert_eq!(count(&svg, "line", "s s3"), 1, "one entry in the legend");
    }

    #[test]
    fn a_long_line_is_not_dotted() {
        let points: Vec<(f64, f64)> = (0..500).map(|second| (f64::from(second), 7.0)).collect();
        let panel = Panel {
            title: String::new(),
            x: Axis::new("time, s", Scale::Linear),
            y: Axis::new("operations/s", Scale::Linear),
            series: vec![series("one", 1, &points)],
        };
        let svg = lines("throughput", &[panel]);
        assert_eq!(polyline_points(&svg, "s1"), 500);
        assert_eq!(count(&svg, "circle", "s1"), 0);
    }

    #[test]
    fn nothing_to_show_says_so() {
        let panel = Panel {
            title: "empty".to_owned(),
            x: Axis::new("x", Scale::Linear),
            y: Axis::new("y", Scale::Log),
            series: vec![series("none", 0, &[(1.0, f64::NAN)])],
        };
        let svg = lines("empty", &[panel]);
        assert!(svg.contains("no figures"));
        roxmltree::Document::parse(&svg).unwrap();
    }
}
