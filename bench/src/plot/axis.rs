//! Axes: how a figure becomes a place, which ticks stand on an axis, how figures are written beside them.
//!
//! Pure arithmetic; it knows no page.

/// How figures spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero, evenly.
    Linear,
    /// By powers of ten; figures up to zero are left out.
    Log,
    /// Quantiles from 0 to 1, each further nine as wide as the one before: 50, 90, 99, 99.9 %.
    Quantile,
}

/// An axis as asked for.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// What it shows, with its unit.
    pub(crate) label: String,
    /// How figures spread.
    pub(crate) scale: Scale,
}

impl Axis {
    /// An axis with a label, which names the unit.
    #[must_use]
    pub(crate) fn new(label: &str, scale: Scale) -> Self {
        Self { label: label.to_owned(), scale }
    }
}

/// Quantiles end here: no run has samples for more.
const QUANTILE_MAX: f64 = 0.999_999_9;

/// Ticks along one axis, about this many.
const TICKS: f64 = 5.0;

/// An axis with the range its figures need.
pub(super) struct Range {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Range {
    /// The range that holds all figures, rounded outwards. None if there is no figure that can be shown.
    pub(super) fn of(scale: Scale, figures: impl Iterator<Item = f64>) -> Option<Self> {
        let shown: Vec<f64> = figures.filter_map(|figure| along(scale, figure)).collect();
        let low = shown.iter().copied().reduce(f64::min)?;
        let high = shown.iter().copied().reduce(f64::max)?;
        let (low, high) = match scale {
            Scale::Linear => (low.min(0.0), rounded_up(high)),
            Scale::Log => (step_down(low), step_up(high)),
            Scale::Quantile => (0.0, high.max(1.0)),
        };
        Some(Self { scale, low, high: if high > low { high } else { low + 1.0 } })
    }

    /// The share of the axis at which a figure stands, 0 to 1. None if it cannot be shown.
    pub(super) fn share(&self, figure: f64) -> Option<f64> {
        Some((along(self.scale, figure)? - self.low) / (self.high - self.low))
    }

    /// The ticks: share of the axis and text.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let figures: Vec<f64> = match self.scale {
            Scale::Linear => {
                let step = nice_step((self.high - self.low) / TICKS);
                let mut at = (self.low / step).ceil() * step;
                std::iter::from_fn(|| {
                    let here = at;
                    at += step;
                    (here <= self.high + step * 1e-6).then_some(here)
                })
                .collect()
            }
            Scale::Log => self.log_ticks(),
            Scale::Quantile => {
                let all = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999];
                all.into_iter().filter(|quantile| self.share(*quantile).is_some_and(|share| share <= 1.001)).collect()
            }
        };
        let text = |figure: f64| if self.scale == Scale::Quantile { percent(figure) } else { short(figure) };
        figures.into_iter().filter_map(|figure| Some((self.share(figure)?, text(figure)))).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let steps: &[f64] = if self.high - self.low <= 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let (mut decade, last) = (self.low.floor(), self.high);
        let mut ticks = Vec::new();
        while decade <= last {
            ticks.extend(steps.iter().map(|step| step * 10_f64.powf(decade)));
            decade += 1.0;
        }
        let inside = |figure: &f64| figure.log10() >= self.low - 1e-9 && figure.log10() <= self.high + 1e-9;
        ticks.into_iter().filter(inside).collect()
    }
}

/// The figure on the axis' own measure.
fn along(scale: Scale, figure: f64) -> Option<f64> {
    let value = match scale {
        Scale::Linear => figure,
        Scale::Log if figure > 0.0 => figure.log10(),
        Scale::Log => return None,
        Scale::Quantile => -(1.0 - figure.clamp(0.0, QUANTILE_MAX)).log10(),
    };
    value.is_finite().then_some(value)
}

/// 1, 2 or 5 times a power of ten, not below.
fn nice_step(step: f64) -> f64 {
    if step <= 0.0 || !step.is_finite() {
        return 1.0;
    }
    let decade = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= step * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * decade
}

fn rounded_up(high: f64) -> f64 {
    let step = nice_step(high / TICKS);
    (high / step).ceil() * step
}

/// The next power of ten, or 2 or 5 of them, downwards on the logarithmic measure.
fn step_down(low: f64) -> f64 {
    let decade = low.floor();
    let steps = [5_f64.log10(), 2_f64.log10(), 0.0];
    decade + steps.into_iter().find(|step| decade + step <= low + 1e-9).unwrap_or(0.0)
}

fn step_up(high: f64) -> f64 {
    let decade = high.floor();
    let steps = [0.0, 2_f64.log10(), 5_f64.log10()];
    decade + steps.into_iter().find(|step| decade + step >= high - 1e-9).unwrap_or(1.0)
}

/// A quantile as a percentage, with as many nines as it has.
fn percent(quantile: f64) -> String {
    let text = format!("{:.4}", quantile * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A figure in three digits and a letter: 0.62, 64, 1.2k, 1.57M.
pub(super) fn short(figure: f64) -> String {
    let (value, letter) = match figure.abs() {
        size if size >= 999.5e6 => (figure / 1e9, "G"),
        size if size >= 999.5e3 => (figure / 1e6, "M"),
        size if size >= 999.5 => (figure / 1e3, "k"),
        _ => (figure, ""),
    };
    let digits = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        fn check(figure: f64, expect: &str) {
            assert_eq!(short(figure), expect);
        }
        check(0.0, "0");
        check(0.62, "0.62");
        check(0.004_25, "0.0043");
        check(12.34, "12.3");
        check(64.0, "64");
        check(999.6, "1k");
        check(1_234.0, "1.23k");
        check(150_000.0, "150k");
        check(1_572_183.0, "1.57M");
        check(2e9, "2G");
    }

    #[test]
    fn quantiles_widen_with_every_nine() {
        let range = Range::of(Scale::Quantile, [0.5, 0.9, 0.999].into_iter()).unwrap();
        let at = |quantile| range.share(quantile).unwrap();
        assert!((at(0.9) - 1.0 / 3.0).abs() < 1e-9 && (at(0.99) - 2.0 / 3.0).abs() < 1e-9);
        let ticks: Vec<String> = range.ticks().into_iter().map(|(_, text)| text).collect();
        assert_eq!(ticks, ["50 %", "90 %", "99 %", "99.9 %"]);
        assert!(range.share(1.0).unwrap().is_finite());
    }

    #[test]
    fn ranges_hold_their_figures_and_ticks_lie_within() {
        for scale in [Scale::Linear, Scale::Log] {
            for figures in [vec![0.003], vec![1.0, 1000.0], vec![37.0, 38.0], vec![0.2, 7_000_000.0]] {
                let range = Range::of(scale, figures.iter().copied()).unwrap();
                let inside = |share: f64| (-1e-6..=1.0 + 1e-6).contains(&share);
                assert!(figures.iter().all(|figure| inside(range.share(*figure).unwrap())), "{scale:?} {figures:?}");
                let ticks = range.ticks();
                assert!(ticks.iter().all(|(share, _)| inside(*share)), "{scale:?} {figures:?} {ticks:?}");
                assert!((2..=12).contains(&ticks.len()), "{scale:?} {figures:?} {ticks:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_shown_is_left_out() {
        assert!(Range::of(Scale::Log, [0.0, -1.0, f64::NAN].into_iter()).is_none());
        let range = Range::of(Scale::Log, [0.0, 10.0].into_iter()).unwrap();
        assert!(range.share(0.0).is_none());
        assert!(range.share(10.0).is_some());
    }
}
