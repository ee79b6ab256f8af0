//! A little SVG: a page with a style sheet for light and dark, and the few shapes the plots need.
//!
//! Text is escaped and every number is finite and short. Colours are classes, so that one file follows the reader's
//! colour scheme; series differ by dashes too, for readers who see no colours. Pure; it knows no figure and no file.

use std::fmt::Write as _;

/// Series with a colour and dashes of their own; later ones repeat them.
pub(super) const SERIES_MAX: usize = 8;

/// Stroke in light and dark, and dashes.
const SERIES: [(&str, &str, &str); SERIES_MAX] = [
    ("#1f5fbf", "#6ea8ff", "none"),
    ("#c2570c", "#ff9e57", "none"),
    ("#1a7f4b", "#55c98a", "7 3"),
    ("#8a3fb5", "#c79bff", "2 2"),
    ("#a8174e", "#ff7fa8", "9 3 2 3"),
    ("#0b7a8c", "#4fc8dc", "4 2"),
    ("#7a5c00", "#d9b44a", "12 4"),
    ("#555f6b", "#a7b3c2", "1 3"),
];

/// Where a text is held.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A page under construction. All lengths are in pixels from the top left.
pub(super) struct Svg {
    width: f64,
    height: f64,
    title: String,
    body: String,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        Self { width, height, title: escaped(title), body: String::new() }
    }

    /// A text of a class: `title`, `label` or `tick`.
    pub(super) fn text(&mut self, class: &str, anchor: Anchor, x: f64, y: f64, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (number(x), number(y), escaped(text));
        self.push(format_args!(r#"<text class="{class}" text-anchor="{anchor}" x="{x}" y="{y}">{text}</text>"#));
    }

    /// A text from bottom to top, centred on a place.
    pub(super) fn upright(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let (x, y, text) = (number(x), number(y), escaped(text));
        self.push(format_args!(
            r#"<text class="{class}" text-anchor="middle" transform="translate({x} {y}) rotate(-90)">{text}</text>"#
        ));
    }

    /// A straight line of a class: `grid`, `axis` or a series.
    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(number);
        self.push(format_args!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    /// A line through all points.
    pub(super) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut places = String::new();
        for (x, y) in points {
            let _ = write!(places, "{},{} ", number(*x), number(*y));
        }
        let places = places.trim_end();
        self.push(format_args!(r#"<polyline class="{class}" points="{places}"/>"#));
    }

    /// A point with a tooltip that shows its figures.
    pub(super) fn point(&mut self, class: &str, at: (f64, f64), tooltip: &str) {
        let (x, y, tooltip) = (number(at.0), number(at.1), escaped(tooltip));
        self.push(format_args!(
            r#"<circle class="{class}" cx="{x}" cy="{y}" r="2.8"><title>{tooltip}</title></circle>"#
        ));
    }

    /// The whole file.
    pub(super) fn finish(self) -> String {
        let (width, height, title) = (number(self.width), number(self.height), &self.title);
        let mut out = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">"#
        );
        let _ = write!(out, "\n<title>{title}</title>\n<style>\n{}</style>\n", style());
        let _ = writeln!(out, r#"<rect class="page" width="{width}" height="{height}"/>"#);
        out.push_str(&self.body);
        out.push_str("</svg>\n");
        out
    }

    fn push(&mut self, shape: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.body, "{shape}");
    }
}

/// The class of a series' lines and points.
pub(super) fn series_class(at: usize) -> String {
    format!("s{}", at % SERIES_MAX)
}

fn style() -> String {
    let mut out = String::from(
        "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1c2530}\n\
         .title{font-size:15px;font-weight:600}.label{font-size:12px}.tick{font-size:11px;fill:#4a5563}\n\
         .page{fill:#ffffff}.grid{stroke:#e3e7ec;stroke-width:1}.axis{stroke:#7c8794;stroke-width:1}\n\
         polyline,line.s{fill:none;stroke-width:2;stroke-linejoin:round}\n",
    );
    let mut dark = String::from(
        "text{fill:#e8edf3}.tick{fill:#aab5c2}.page{fill:#12181f}.grid{stroke:#29323d}.axis{stroke:#6d7a89}\n",
    );
    for (at, (light_stroke, dark_stroke, dashes)) in SERIES.iter().enumerate() {
        let _ = writeln!(
            out,
            "polyline.s{at},line.s{at}{{stroke:{light_stroke};stroke-dasharray:{dashes}}}\
             circle.s{at}{{fill:{light_stroke}}}"
        );
        let _ = writeln!(dark, "polyline.s{at},line.s{at}{{stroke:{dark_stroke}}}circle.s{at}{{fill:{dark_stroke}}}");
    }
    let _ = write!(out, "@media (prefers-color-scheme:dark){{\n{dark}}}\n");
    out
}

/// Up to two digits behind the point; what is not a number would make the file unreadable.
fn number(value: f64) -> String {
    assert!(value.is_finite(), "a place on the page is a number");
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Control characters cannot stand in XML at all.
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b> & \"c\"\u{0}"), "a&lt;b&gt; &amp; &quot;c&quot; ");
    }

    #[test]
    fn numbers_are_short() {
        fn check(value: f64, expect: &str) {
            assert_eq!(number(value), expect);
        }
        check(1.0, "1");
        check(100.0, "100");
        check(1.256, "1.26");
        check(-0.5, "-0.5");
        check(0.0, "0");
    }
}
