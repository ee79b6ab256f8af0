//! Metrics and commands for administration in a `zoo.cfg`: where and how they are served by HTTP.
//!
//! Start-up only, on the main thread. Everything is gathered first, because several keys make one value.

use std::net::Ipv4Addr;

use crate::config::problem::{Draft, Source};
use crate::config::properties::{Keys, flag, port};
use crate::config::value::{Raw, Rejection, resolve, shortened};

const CLASS: &str = "metricsProvider.className";
const PROVIDER: &str = "metricsProvider.";
const PACKAGE: &str = "org.apache.zookeeper.metrics.";
/// Keys of an address, with their defaults.
struct Address {
    host: (&'static str, Ipv4Addr),
    port: (&'static str, u16),
}
/// The host is the provider's own default.
const METRICS: Address =
    Address { host: ("metricsProvider.httpHost", Ipv4Addr::UNSPECIFIED), port: ("metricsProvider.httpPort", 7000) };
/// ZooKeeper listens on every network, and shows the paths and addresses of all clients there.
const ADMIN: Address = Address { host: ("admin.serverAddress", Ipv4Addr::LOCALHOST), port: ("admin.serverPort", 8080) };

/// A key, its line, and why it is refused.
type Refused = (&'static str, u32, Rejection);

/// The keys of HTTP.
pub(crate) struct Found {
    pub(crate) keys: Keys,
}

impl Found {
    /// Judges what was found. Gives the keys of a provider of metrics that this server does not have.
    pub(crate) fn judge(self, draft: &mut Draft) -> Vec<String> {
        let class = self.keys.get(CLASS).map_or("", |(class, _)| class.trim());
        let (serves_metrics, is_known) = match class.strip_prefix(PACKAGE) {
            Some("prometheus.PrometheusMetricsProvider") => (true, true),
            // These serve nothing by HTTP, and need no address.
            Some("impl.DefaultMetricsProvider" | "impl.NullMetricsProvider") => (false, true),
            _ => (false, false),
        };
        let metrics = if serves_metrics { self.listen(&METRICS, "metrics.http_addr", CLASS, draft) } else { Ok(()) };
        let has_admin = [ADMIN.host.0, ADMIN.port.0].iter().any(|key| self.keys.contains_key(*key));
        let admin = if has_admin { self.listen(&ADMIN, "admin.http_addr", ADMIN.port.0, draft) } else { Ok(()) };
        for (key, line, rejection) in [metrics, admin, self.secure(draft)].into_iter().filter_map(Result::err) {
            draft.problem(&Source::Line(line), key, rejection);
        }
        self.keys.keys().filter(|key| !is_known && key.starts_with(PROVIDER)).map(|key| shortened(key)).collect()
    }

    fn line(&self, key: &str) -> u32 {
        self.keys.get(key).map_or(0, |(_, line)| *line)
    }

    fn listen(&self, at: &Address, to: &str, named_by: &'static str, draft: &mut Draft) -> Result<(), Refused> {
        let wrong = |key: &'static str| move |rejection: Rejection| (key, self.line(key), rejection);
        let ((host_key, host), (port_key, number)) = (at.host, at.port);
        let number = self.keys.get(port_key).map_or(Ok(number), |(value, _)| port(value)).map_err(wrong(port_key))?;
        let host = self.keys.get(host_key).map_or_else(|| host.to_string(), |(host, _)| host.clone());
        let address = resolve(host.trim_matches(['[', ']']), number).map_err(wrong(host_key))?;
        let line = if self.keys.contains_key(named_by) { self.line(named_by) } else { self.line(host_key) };
        draft.assign(to, &Raw::Text(address.to_string()), Source::Line(line), named_by);
        Ok(())
    }

    /// TLS of the port for administration.
    fn secure(&self, draft: &mut Draft) -> Result<(), Refused> {
        let keys = [
            ("admin.portUnification", "admin.tls", "also"),
            ("admin.forceHttps", "admin.tls", "only"),
            ("admin.needClientAuth", "admin.client_auth", "need"),
        ];
        for (key, to, word) in keys {
            let Some((value, line)) = self.keys.get(key) else { continue };
            if flag(value).map_err(|rejection| (key, *line, rejection))? {
                draft.assign(to, &Raw::Text(word.to_owned()), Source::Line(*line), key);
            }
        }
        Ok(())
    }
}
