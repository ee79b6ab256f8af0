//! The provider of metrics in a `zoo.cfg`.
//!
//! Start-up only, on the main thread. Everything is gathered first, because the class may be on the last line.

use crate::config::problem::{Draft, Source, shortened};
use crate::config::properties::{Keys, port};
use crate::config::value::{Raw, Rejection, resolve};

const CLASS: &str = "metricsProvider.className";
const HOST: &str = "metricsProvider.httpHost";
const PORT: &str = "metricsProvider.httpPort";
const PACKAGE: &str = "org.apache.zookeeper.metrics.";
/// The provider's own.
const HOST_DEFAULT: &str = "0.0.0.0";
const PORT_DEFAULT: u16 = 7000;

/// The keys of the provider.
pub(crate) struct Found {
    pub(crate) keys: Keys,
}

impl Found {
    /// Judges what was found. Gives the keys of a provider that this server does not have.
    pub(crate) fn judge(self, draft: &mut Draft) -> Vec<String> {
        let class = self.keys.get(CLASS).map_or("", |(class, _)| class.trim());
        match class.strip_prefix(PACKAGE) {
            Some("prometheus.PrometheusMetricsProvider") => {
                if let Err((key, line, rejection)) = self.serve(draft) {
                    draft.problem(&Source::Line(line), key, rejection);
                }
                Vec::new()
            }
            // These serve nothing by HTTP, and need no address.
            Some("impl.DefaultMetricsProvider" | "impl.NullMetricsProvider") => Vec::new(),
            _ => self.keys.into_keys().map(|key| shortened(&key)).collect(),
        }
    }

    fn serve(&self, draft: &mut Draft) -> Result<(), (&'static str, u32, Rejection)> {
        let line = |key: &str| self.keys.get(key).map_or(0, |(_, line)| *line);
        let wrong = |key: &'static str| move |rejection: Rejection| (key, line(key), rejection);
        let port = self.keys.get(PORT).map_or(Ok(PORT_DEFAULT), |(value, _)| port(value)).map_err(wrong(PORT))?;
        let host = self.keys.get(HOST).map_or(HOST_DEFAULT, |(host, _)| host.trim_matches(['[', ']']));
        let address = resolve(host, port).map_err(wrong(HOST))?;
        let source = Source::Line(line(CLASS));
        draft.assign("metrics.http_addr", &Raw::Text(address.to_string()), source, CLASS);
        Ok(())
    }
}
