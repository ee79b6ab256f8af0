//! Metrics in Prometheus' text format 0.0.4.
//!
//! Names are those of ZooKeeper 3.9's own endpoint. The metrics that only corral has begin with `corral_`. OpenMetrics would end the
//! names of counters in `_total`, and no dashboard made for ZooKeeper would find them.

use corral_core::report::{BOUNDS_US, Gathered, Kind, Quantiles, Sample, Value, samples};
use prometheus::TextEncoder;
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};

/// The content type of [`text`].
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of a server, gathered for `mntr`.
///
/// # Errors
/// If the table of metrics has a name that is none in Prometheus.
pub(crate) fn text(gathered: &Gathered) -> prometheus::Result<String> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for sample in samples(gathered) {
        let name = sample.metric.prometheus_name();
        let metric = metric(&sample);
        match families.last_mut().filter(|family| family.name() == name) {
            Some(family) => family.mut_metric().push(metric),
            None => {
                let mut family = MetricFamily::default();
                family.set_name(name);
                family.set_help(sample.metric.help.to_owned());
                family.set_field_type(kind(sample.metric.kind));
                family.set_metric(vec![metric]);
                families.push(family);
            }
        }
    }
    TextEncoder::new().encode_to_string(&families)
}

const fn kind(kind: Kind) -> MetricType {
    match kind {
        // A text is a label of a gauge.
        Kind::Gauge | Kind::Text => MetricType::GAUGE,
        Kind::Counter => MetricType::COUNTER,
        Kind::Summary => MetricType::SUMMARY,
        Kind::Histogram => MetricType::HISTOGRAM,
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers are double precision in Prometheus")]
fn metric(sample: &Sample) -> proto::Metric {
    let mut metric = proto::Metric::default();
    let label = |name: &str, value: &str| {
        let mut label = LabelPair::default();
        label.set_name(name.to_owned());
        label.set_value(value.to_owned());
        label
    };
    let mut labels: Vec<LabelPair> = sample.label.iter().map(|(name, value)| label(name, value)).collect();
    let number = match &sample.value {
        Value::Whole(number) => *number as f64,
        Value::TenThousandths(number) => *number as f64 / 10_000.0,
        Value::Text(text) => {
            labels.push(label(sample.metric.name, text));
            1.0
        }
        Value::Summary(of) => {
            let mut summary = proto::Summary::default();
            summary.set_sample_count(of.count);
            summary.set_sample_sum(of.sum as f64);
            summary.set_quantile(of.quantiles.iter().flat_map(quantiles).collect());
            metric.set_summary(summary);
            0.0
        }
        Value::Histogram(of) => {
            let mut histogram = proto::Histogram::default();
            histogram.set_sample_count(of.count);
            histogram.set_sample_sum(seconds(of.us_sum));
            let bucket = |(bound, count): (u64, u64)| {
                let mut bucket = proto::Bucket::default();
                bucket.set_upper_bound(seconds(bound));
                bucket.set_cumulative_count(count);
                bucket
            };
            histogram.set_bucket(BOUNDS_US.into_iter().zip(of.upto).map(bucket).collect());
            metric.set_histogram(histogram);
            0.0
        }
        Value::Absent => 0.0,
    };
    metric.set_label(labels);
    match sample.metric.kind {
        Kind::Gauge | Kind::Text => {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(number);
            metric.set_gauge(gauge);
        }
        Kind::Counter => {
            let mut counter = proto::Counter::default();
            counter.set_value(number);
            metric.set_counter(counter);
        }
        Kind::Summary | Kind::Histogram => {}
    }
    metric
}

#[expect(clippy::cast_precision_loss, reason = "numbers are double precision in Prometheus")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}

/// In milliseconds, as ZooKeeper has them.
fn quantiles(of: &Quantiles) -> Vec<proto::Quantile> {
    let quantile = |(quantile, us): (f64, u64)| {
        let mut shown = proto::Quantile::default();
        shown.set_quantile(quantile);
        shown.set_value(seconds(us) * 1000.0);
        shown
    };
    [(0.5, of.p50), (0.9, of.p90), (0.99, of.p99)].map(quantile).into()
}
