//! The types of metrics, and their origins.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value of now.
    Gauge,
    /// Grows until the server is restarted, or `srst` resets it.
    Counter,
    /// Number, sum, average and extremes of durations, in milliseconds.
    Summary,
    /// Durations: in milliseconds in `mntr`, in seconds in Prometheus.
    Histogram,
    /// A word or a sentence.
    Text,
}

impl Kind {
    /// The name in lower case, for lists of metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
            Self::Text => "text",
        }
    }
}

/// Where the name and the meaning of a metric come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// ZooKeeper 3.9 has a metric of this name and meaning.
    ZooKeeper,
    /// The process metrics that all of Prometheus' client libraries export.
    Prometheus,
    /// Of this server alone.
    Corral,
}
