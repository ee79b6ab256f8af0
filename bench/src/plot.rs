//! Plots for the report page, as SVG files that read well in light and dark: lines over an axis, and bars.
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
    /// The number of its colour; the same server has the same in all plots.
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

/// One bar with its spread.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// At its left.
    pub(crate) name: String,
    /// The number of its colour.
    pub(crate) colour: usize,
    /// The median, the smallest and the largest.
    pub(crate) value: f64,
    /// The smallest of all runs.
    pub(crate) low: f64,
    /// The largest of all runs.
    pub(crate) high: f64,
}

/// Bars that share an axis.
#[derive(Clone, Debug)]
pub(crate) struct BarGroup {
    /// Above the bars.
    pub(crate) title: String,
    /// The bars, from the top.
    pub(crate) bars: Vec<Bar>,
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

const BAR_COLUMNS: usize = 2;
const BAR_WIDTH: f64 = 520.0;
const BAR_ROW: f64 = 18.0;
const BAR_NAME: f64 = 170.0;
const BAR_VALUE: f64 = 62.0;
const BAR_TITLE: f64 = 40.0;

/// Groups of horizontal bars, each with an axis of its own from zero, two in a row; whiskers show the spread.
#[must_use]
pub(crate) fn bars(title: &str, unit: &str, groups: &[BarGroup]) -> String {
    let height_of = |group: &BarGroup| BAR_TITLE + BAR_ROW * as_f64(group.bars.len());
    let heights: Vec<f64> =
        groups.chunks(BAR_COLUMNS).map(|row| row.iter().map(height_of).fold(0.0, f64::max)).collect();
    let mut svg = Svg::new(BAR_WIDTH * as_f64(BAR_COLUMNS), 60.0 + heights.iter().sum::<f64>(), title);
    svg.text("title", Anchor::Start, 16.0, 24.0, title);
    svg.text("tick", Anchor::Start, 16.0, 42.0, &format!("{unit}; each group has an axis of its own from 0"));
    let mut top = 48.0;
    for (row, height) in groups.chunks(BAR_COLUMNS).zip(heights) {
        for (column, group) in row.iter().enumerate() {
            draw_bars(&mut svg, group, BAR_WIDTH * as_f64(column), top);
        }
        top += height;
    }
    svg.finish()
}

fn draw_bars(svg: &mut Svg, group: &BarGroup, left: f64, top: f64) {
    let x0 = left + BAR_NAME;
    let room = BAR_WIDTH - BAR_NAME - BAR_VALUE;
    svg.text("label", Anchor::Start, left + 16.0, top + 22.0, &group.title);
    let finite = |bar: &&Bar| bar.value.is_finite() && bar.low.is_finite() && bar.high.is_finite();
    let largest = group.bars.iter().filter(finite).map(|bar| bar.high.max(bar.value)).fold(0.0, f64::max);
    for (at, bar) in group.bars.iter().filter(finite).enumerate() {
        let y = top + BAR_TITLE - 8.0 + BAR_ROW * as_f64(at);
        let long = |value: f64| if largest > 0.0 { value / largest * room } else { 0.0 };
        let told = format!("{}: {} ({} to {})", bar.name, short(bar.value), short(bar.low), short(bar.high));
        svg.text("tick", Anchor::End, x0 - 6.0, y + 10.0, &bar.name);
        svg.bar(&series_class(bar.colour), (x0, y), (long(bar.value), BAR_ROW - 6.0), &told);
        svg.line("whisker", (x0 + long(bar.low), y + 6.0), (x0 + long(bar.high), y + 6.0));
        svg.text("tick", Anchor::Start, x0 + long(bar.high.max(bar.value)) + 6.0, y + 10.0, &short(bar.value));
    }
    svg.line("axis", (x0, top + BAR_TITLE - 10.0), (x0, top + BAR_TITLE - 10.0 + BAR_ROW * as_f64(group.bars.len())));
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

    #[test]
    fn a_bar_for_every_server_with_its_spread() {
        let bar = |name: &str, colour, value| Bar {
            name: name.to_owned(),
            colour,
            value,
            low: value * 0.9,
            high: value * 1.2,
        };
        let group = |title: &str| BarGroup {
            title: title.to_owned(),
            bars: vec![bar("one", 0, 1.0), bar("two", 1, 0.0), bar("broken", 2, f64::NAN)],
        };
        let svg = bars("CPU", "us per operation", &[group("get"), group("set"), group("create")]);
        assert_eq!(count(&svg, "rect", "s0"), 3);
        assert_eq!(count(&svg, "rect", "s1"), 3);
        assert_eq!(count(&svg, "rect", "s2"), 0);
        assert_eq!(count(&svg, "line", "whisker"), 6);
    }
}
