//! The meaning of each key of a ZooKeeper `zoo.cfg` for this server: the table for the importer and for the reference.
//!
//! Pure data. It does not know how values are parsed. Keys ending in `*` stand for every key with that beginning.

/// How a key of `zoo.cfg` is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A whole number times `scale` becomes the value of the key `to`; -1, ZooKeeper's "not set", becomes 0.
    Number {
        to: &'static str,
        scale: u32,
        /// A tuning value outside the limits of `to` is moved to the nearest limit, with a warning; others are refused.
        clamp: bool,
    },
    /// A whole number; `to` becomes true when it is above 0.
    Positive { to: &'static str },
    /// `true` or `false`, or `yes` or `no`.
    Flag { to: &'static str },
    /// Taken as it is.
    Text { to: &'static str },
    /// Java's name of a hash, for `security.digest_algorithm`.
    DigestAlgorithm,
    /// Comma-separated four-letter commands.
    Words { to: &'static str },
    /// Port part of `server.client_addr`.
    ClientPort,
    /// Host part of `server.client_addr`.
    ClientAddress,
    /// A file with more lines of this kind.
    DynamicFile,
    /// Only this value, in any case, is possible; others are refused with the reason.
    Only { value: &'static str, reason: &'static str },
    /// Demands protection that this server does not give: the start ends, unless the value is one of `off`.
    Demand {
        off: &'static [&'static str],
        /// Follows "asks for".
        what: &'static str,
        remedy: &'static str,
    },
    /// The class of an authentication provider; those of SASL and X.509 switch their schemes on.
    AuthProvider,
    /// Means this with more than one server; a standalone server ignores it, ZooKeeper's as well.
    Ensemble(&'static str),
    /// Means this where a port serves TLS to clients; without such a port ZooKeeper ignores it as well.
    Tls(&'static str),
    /// Says which identities clients must prove, or which are super users.
    Enforce(&'static str),
    /// Says where and how metrics, or commands for administration, are served by HTTP.
    Http(&'static str),
    /// Has no meaning in this server.
    Meaningless,
    /// Ignored by every standalone server, ZooKeeper's as well.
    EnsembleOnly,
    /// Asks for a feature that this version does not offer.
    NotOffered,
}

const fn number(to: &'static str) -> Rule {
    Rule::Number { to, scale: 1, clamp: false }
}

/// A tuning number: what is out of range is moved into it.
const fn tuning(to: &'static str, scale: u32) -> Rule {
    Rule::Number { to, scale, clamp: true }
}

const DURABILITY: &str = "every acknowledged write is on disk";
pub(crate) const OFF: &[&str] = &["false", "no"];

/// The key without the prefix of Java's system properties, which has no place in a `zoo.cfg`.
pub(crate) fn without_prefix(key: &str) -> &str {
    key.strip_prefix("zookeeper.").unwrap_or(key)
}

/// The names of all keys that are no beginnings.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ZOO_KEYS.iter().map(|(name, _)| *name).filter(|name| !name.ends_with('*'))
}

/// Whether the key is listed here by its whole name.
pub(crate) fn is_listed(key: &str) -> bool {
    names().any(|name| name == key)
}

/// The rule of a key; `None` when ZooKeeper does not know the key either.
pub(crate) fn rule(key: &str) -> Option<Rule> {
    let exact = ZOO_KEYS.iter().find(|(name, _)| *name == key);
    let by_prefix =
        || ZOO_KEYS.iter().find(|(name, _)| name.strip_suffix('*').is_some_and(|prefix| key.starts_with(prefix)));
    exact.or_else(by_prefix).map(|(_, rule)| *rule)
}

/// Every key that ZooKeeper 3.9 knows, except `server.N`, `group.N`, `weight.N` and `version`, which the importer reads
/// itself.
pub(crate) const ZOO_KEYS: &[(&str, Rule)] = &[
    ("dataDir", Rule::Text { to: "server.data_dir" }),
    ("dataLogDir", Rule::Text { to: "server.log_dir" }),
    ("clientPort", Rule::ClientPort),
    ("clientPortAddress", Rule::ClientAddress),
    ("tickTime", number("server.tick_time_ms")),
    ("minSessionTimeout", number("sessions.timeout_min_ms")),
    ("maxSessionTimeout", number("sessions.timeout_max_ms")),
    ("nio.sessionlessCnxnTimeout", number("sessions.sessionless_timeout_ms")),
    ("maxClientCnxns", number("limits.connections_per_ip_max")),
    ("maxCnxns", number("limits.connections_max")),
    ("jute.maxbuffer", tuning("limits.frame_bytes_max", 1)),
    ("globalOutstandingLimit", tuning("limits.requests_in_flight_per_connection_max", 1)),
    ("preAllocSize", tuning("log.segment_bytes", 1024)),
    ("fsync.warningthresholdms", tuning("log.sync_warning_ms", 1)),
    ("snapCount", tuning("snapshot.txns_max", 1)),
    ("snapSizeLimitInKb", tuning("snapshot.log_bytes_max", 1024)),
    ("autopurge.snapRetainCount", tuning("snapshot.snapshots_retained", 1)),
    ("autopurge.purgeInterval", Rule::Positive { to: "snapshot.purge" }),
    ("4lw.commands.whitelist", Rule::Words { to: "commands.four_letter_whitelist" }),
    ("znode.container.checkIntervalMs", tuning("containers.check_interval_ms", 1)),
    ("znode.container.maxPerMinute", tuning("containers.deletes_per_minute_max", 1)),
    ("znode.container.maxNeverUsedIntervalMs", tuning("containers.never_used_max_ms", 1)),
    ("extendedTypesEnabled", Rule::Flag { to: "features.extended_types" }),
    ("enforceQuota", Rule::Flag { to: "features.enforce_quota" }),
    ("reconfigEnabled", Rule::Flag { to: "features.reconfig" }),
    ("standaloneEnabled", Rule::Flag { to: "features.two_voters" }),
    ("skipACL", Rule::Flag { to: "security.skip_acl" }),
    ("DigestAuthenticationProvider.superDigest", Rule::Text { to: "security.super_digest" }),
    ("DigestAuthenticationProvider.digestAlg", Rule::DigestAlgorithm),
    ("DigestAuthenticationProvider.enabled", Rule::Flag { to: "security.digest_scheme" }),
    ("dynamicConfigFile", Rule::DynamicFile),
    ("forceSync", Rule::Only { value: "yes", reason: DURABILITY }),
    ("enforce.auth.enabled", Rule::Enforce("true: `security.enforce_schemes` is the list of `enforce.auth.schemes`")),
    ("enforce.auth.schemes", Rule::Enforce("with `enforce.auth.enabled` `security.enforce_schemes`")),
    ("sessionRequireClientSASLAuth", Rule::Enforce("true: `sasl` in `security.enforce_schemes`")),
    (
        "requireClientAuthScheme",
        Rule::Demand {
            off: &[],
            what: "authentication of every client, but has no effect in ZooKeeper",
            remedy: "write enforce.auth.enabled=true and enforce.auth.schemes=sasl, or drop the line",
        },
    ),
    ("secureClientPort", Rule::Tls("the port of `tls.client_addr`")),
    ("secureClientPortAddress", Rule::Tls("the host of `tls.client_addr`")),
    ("client.portUnification", Rule::Tls("`tls.on_client_addr`: `also`")),
    ("client.certReload", Rule::Tls("`tls.watch`")),
    ("ssl.clientAuth", Rule::Tls("`tls.client_auth`")),
    ("ssl.keyStore.location", Rule::Tls("`tls.key_store`")),
    ("ssl.keyStore.password", Rule::Tls("`tls.key_store_password`")),
    ("ssl.keyStore.passwordPath", Rule::Tls("`tls.key_store_password_file`")),
    ("ssl.keyStore.type", Rule::Tls("`JKS`, `PEM` or `PKCS12`. The content of the file decides")),
    ("ssl.trustStore.location", Rule::Tls("`tls.trust_store`")),
    ("ssl.trustStore.password", Rule::Tls("`tls.trust_store_password`")),
    ("ssl.trustStore.passwordPath", Rule::Tls("`tls.trust_store_password_file`")),
    ("ssl.trustStore.type", Rule::Tls("`JKS`, `PEM` or `PKCS12`. The content of the file decides")),
    ("ssl.protocol", Rule::Tls("`TLSv1.2`: that alone (`tls.protocols`). `TLSv1.3` and `TLS`: both")),
    ("ssl.enabledProtocols", Rule::Tls("`tls.protocols`")),
    ("ssl.ciphersuites", Rule::Tls("`tls.cipher_suites`. A warning names suites that are not served")),
    ("ssl.crl", Rule::Tls("true: `tls.crl_file` must be given as well")),
    ("ssl.ocsp", Rule::Tls("only `false`")),
    ("ssl.clientHostnameVerification", Rule::Tls("only `false`, ZooKeeper's default")),
    ("ssl.authProvider", Rule::Tls("only `x509`")),
    ("ssl.handshakeDetectionTimeoutMillis", Rule::Tls("`tls.detection_ms`")),
    ("netty.server.outstandingHandshake.limit", Rule::Tls("`tls.handshakes_max`. Further clients wait to be accepted")),
    ("ssl.hostnameVerification", Rule::Meaningless),
    ("ssl.allowReverseDnsLookup", Rule::Meaningless),
    ("ssl.context.supplier.class", Rule::Meaningless),
    ("ssl.sslProvider", Rule::Meaningless),
    ("localSessionsEnabled", Rule::EnsembleOnly),
    ("localSessionsUpgradingEnabled", Rule::EnsembleOnly),
    ("readonlymode.enabled", Rule::Flag { to: "ensemble.read_only" }),
    ("audit.enable", Rule::Flag { to: "audit.enabled" }),
    (
        "audit.impl.class",
        Rule::Only {
            value: "org.apache.zookeeper.audit.Slf4jAuditLogger",
            reason: "the audit log is a file here, see `audit.file` and `audit.format`",
        },
    ),
    ("emulate353TTLNodes", Rule::NotOffered),
    ("enableEagerACLCheck", Rule::NotOffered),
    ("admin.enableServer", Rule::Flag { to: "admin.enabled" }),
    (
        "admin.serverAddress",
        Rule::Http("the host of `admin.http_addr`. Without it 127.0.0.1, where ZooKeeper has 0.0.0.0"),
    ),
    ("admin.serverPort", Rule::Http("the port of `admin.http_addr`")),
    ("admin.commandURL", Rule::Text { to: "admin.command_url" }),
    ("admin.idleTimeout", tuning("admin.idle_timeout_ms", 1)),
    ("admin.portUnification", Rule::Http("`admin.tls = \"also\"`")),
    ("admin.forceHttps", Rule::Http("`admin.tls = \"only\"`")),
    ("admin.needClientAuth", Rule::Http("`admin.client_auth = \"need\"`")),
    ("admin.httpVersion", Rule::Meaningless),
    ("admin.*", Rule::NotOffered),
    (
        "metricsProvider.className",
        Rule::Http("`PrometheusMetricsProvider`: `metrics.http_addr`, with 0.0.0.0:7000 as default"),
    ),
    ("metricsProvider.httpHost", Rule::Http("the host of `metrics.http_addr`")),
    ("metricsProvider.httpPort", Rule::Http("the port of `metrics.http_addr`")),
    ("metricsProvider.exportJvmInfo", Rule::Meaningless),
    ("metricsProvider.numWorkerThreads", Rule::Meaningless),
    ("metricsProvider.maxQueueSize", Rule::Meaningless),
    ("metricsProvider.workerShutdownTimeoutMs", Rule::Meaningless),
    ("metricsProvider.*", Rule::NotOffered),
    ("superUser", Rule::Enforce("a name in `security.sasl_super_users`")),
    ("superUser.*", Rule::Enforce("a name in `security.sasl_super_users`")),
    ("SASLAuthenticationProvider.superPassword", Rule::Text { to: "security.sasl_super_password" }),
    ("letAnySaslUserDoX", Rule::Text { to: "security.sasl_any_user" }),
    ("sasl.serverconfig", Rule::Text { to: "security.sasl_jaas_section" }),
    ("X509AuthenticationProvider.superUser", Rule::Text { to: "security.x509_super_user" }),
    (
        "ensembleAuthName",
        Rule::Demand {
            off: &[""],
            what: "the refusal of clients that mean another ensemble",
            remedy: "drop the line, if no client can reach the wrong ensemble",
        },
    ),
    ("authProvider.*", Rule::AuthProvider),
    ("allowSaslFailedClients", Rule::Flag { to: "security.allow_sasl_failed_clients" }),
    ("sslQuorum", Rule::Ensemble("true: TLS between servers, with the keys and authorities below")),
    ("ssl.quorum.keyStore.location", Rule::Ensemble("with `sslQuorum` `ensemble.tls_cert` and `ensemble.tls_key`")),
    ("ssl.quorum.keyStore.password", Rule::Ensemble("`ensemble.tls_key_password`")),
    ("ssl.quorum.keyStore.passwordPath", Rule::Ensemble("`ensemble.tls_key_password_file`")),
    ("ssl.quorum.keyStore.type", Rule::Ensemble("`JKS`, `PEM` or `PKCS12`. The content of the file decides")),
    ("ssl.quorum.trustStore.location", Rule::Ensemble("with `sslQuorum` `ensemble.tls_ca`")),
    ("ssl.quorum.trustStore.password", Rule::Ensemble("`ensemble.tls_ca_password`")),
    ("ssl.quorum.trustStore.passwordPath", Rule::Ensemble("`ensemble.tls_ca_password_file`")),
    ("ssl.quorum.trustStore.type", Rule::Ensemble("`JKS`, `PEM` or `PKCS12`. The content of the file decides")),
    ("ssl.quorum.hostnameVerification", Rule::Ensemble("only `true`: the names of certificates always count")),
    ("ssl.quorum.clientHostnameVerification", Rule::Ensemble("only `true`: the names of certificates always count")),
    ("ssl.quorum.clientAuth", Rule::Ensemble("only `need`: both sides authenticate")),
    ("portUnification", Rule::Ensemble("only `false`: the port for servers is encrypted or it is not")),
    ("quorum.auth.enableSasl", Rule::Ensemble("only `false`: SASL between servers is not served")),
    ("quorum.auth.serverRequireSasl", Rule::Ensemble("only `false`: SASL between servers is not served")),
    ("quorum.auth.learnerRequireSasl", Rule::Ensemble("only `false`: SASL between servers is not served")),
    ("ssl.quorum.crl", Rule::Ensemble("only `false`: revocation of certificates is not checked")),
    ("ssl.quorum.ocsp", Rule::Ensemble("only `false`: revocation of certificates is not checked")),
    ("electionAlg", Rule::Ensemble("only `3`")),
    ("quorumListenOnAllIPs", Rule::Ensemble("true: `ensemble.peer_addr` with every address, IPv4 and IPv6")),
    ("peerType", Rule::Ensemble("`participant` or `observer`. The list of servers overrides it")),
    ("ssl.quorum.*", Rule::NotOffered),
    ("ssl.*", Rule::Demand { off: &[], what: "a setting of TLS", remedy: "correct the key, or drop the line" }),
    ("request_throttle_max_requests", number("limits.requests_in_flight_max")),
    ("request_throttle_*", Rule::Meaningless),
    ("request_stale_*", Rule::Meaningless),
    ("throttled_op_wait_time", number("limits.throttled_op_wait_ms")),
    ("largeRequestThreshold", number("limits.large_request_bytes")),
    ("largeRequestMaxBytes", tuning("limits.large_requests_bytes_max", 1)),
    ("connection_throttle_tokens", number("rate_limits.connection_tokens")),
    ("connection_throttle_fill_time", number("rate_limits.connection_fill_ms")),
    ("connection_throttle_fill_count", number("rate_limits.connection_fill_count")),
    ("connection_throttle_*", Rule::NotOffered),
    ("clientTcpKeepAlive", Rule::NotOffered),
    ("observerMasterPort", Rule::Meaningless),
    ("clientPortListenBacklog", Rule::Meaningless),
    ("initLimit", Rule::Meaningless),
    ("syncLimit", Rule::Meaningless),
    ("connectToLearnerMasterLimit", Rule::Meaningless),
    ("syncEnabled", Rule::Meaningless),
    ("sslQuorumReloadCertFiles", Rule::Flag { to: "ensemble.tls_watch" }),
    ("quorum.auth.*", Rule::Meaningless),
    ("quorum.cnxn.threads.size", Rule::Meaningless),
    ("jvm.pause.*", Rule::Meaningless),
    ("multiAddress.*", Rule::Meaningless),
    ("oraclePath", Rule::Meaningless),
    ("txnLogSizeLimitInKb", Rule::Meaningless),
    ("commitLogCount", Rule::Meaningless),
    ("snapshotSizeFactor", Rule::Meaningless),
    ("flushDelay", Rule::Meaningless),
    ("maxWriteQueuePollTime", Rule::Meaningless),
    ("maxBatchSize", Rule::Meaningless),
    ("snapshot.compression.method", Rule::Meaningless),
    ("snapshot.trust.empty", Rule::Meaningless),
    ("db.autocreate", Rule::Meaningless),
    ("datadir.autocreate", Rule::Meaningless),
    ("serializeLastProcessedZxid.enabled", Rule::Meaningless),
    ("closeSessionTxn.enabled", Rule::Meaningless),
    ("digest.enabled", Rule::Meaningless),
    ("leaderServes", Rule::Meaningless),
    ("cnxTimeout", Rule::Meaningless),
    ("quorumCnxnTimeoutMs", Rule::Meaningless),
    ("electionPortBindRetry", Rule::Meaningless),
    ("tcpKeepAlive", Rule::Meaningless),
    ("fastleader.*", Rule::Meaningless),
    ("leader.*", Rule::Meaningless),
    ("follower.*", Rule::Meaningless),
    ("observer.*", Rule::Meaningless),
    ("observerMaster.*", Rule::Meaningless),
    ("learner.*", Rule::Meaningless),
    ("nio.*", Rule::Meaningless),
    ("netty.*", Rule::Meaningless),
    ("commitProcessor.*", Rule::Meaningless),
    ("forward_learner_requests_to_commit_processor_disabled", Rule::Meaningless),
    ("serverCnxnFactory", Rule::Meaningless),
    ("watchManagerName", Rule::Meaningless),
    ("watcherCleanThreadsNum", Rule::Meaningless),
    ("watcherCleanThreshold", Rule::Meaningless),
    ("watcherCleanIntervalInSeconds", Rule::Meaningless),
    ("maxInProcessingDeadWatchers", Rule::Meaningless),
    ("kerberos.*", Rule::Meaningless),
    ("fips-mode", Rule::Meaningless),
    ("messageTracker.*", Rule::Meaningless),
    ("pathStats.*", Rule::Meaningless),
    ("bitHashCacheSize", Rule::Meaningless),
];

impl Rule {
    /// The key of this server that the rule sets, if it sets exactly one.
    pub(crate) fn target(self) -> Option<&'static str> {
        match self {
            Rule::Number { to, .. }
            | Rule::Positive { to }
            | Rule::Flag { to }
            | Rule::Text { to }
            | Rule::Words { to } => Some(to),
            Rule::ClientPort | Rule::ClientAddress => Some("server.client_addr"),
            Rule::DigestAlgorithm => Some("security.digest_algorithm"),
            Rule::AuthProvider
            | Rule::DynamicFile
            | Rule::Demand { .. }
            | Rule::Only { .. }
            | Rule::Ensemble(_)
            | Rule::Tls(_)
            | Rule::Enforce(_)
            | Rule::Http(_)
            | Rule::Meaningless
            | Rule::EnsembleOnly
            | Rule::NotOffered => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_targets_exist() {
        let names: BTreeSet<&str> = ZOO_KEYS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), ZOO_KEYS.len(), "two rules for one key");
        for (name, rule) in ZOO_KEYS {
            assert!(rule.target().is_none_or(|to| keys::key(to).is_some()), "{name} sets a key that does not exist");
        }
    }

    #[test]
    fn exact_names_win_over_prefixes() {
        assert_eq!(rule("nio.sessionlessCnxnTimeout"), Some(number("sessions.sessionless_timeout_ms")));
        assert_eq!(rule("nio.numWorkerThreads"), Some(Rule::Meaningless));
        assert!(matches!(rule("ssl.keyStore.location"), Some(Rule::Tls(_))));
        assert!(matches!(rule("ssl.keyStore.pasword"), Some(Rule::Demand { .. })));
        assert_eq!(rule("ssl.quorum.ciphersuites"), Some(Rule::NotOffered));
        assert!(matches!(rule("ssl.quorum.keyStore.location"), Some(Rule::Ensemble(_))));
        assert_eq!(rule("nio"), None);
        assert_eq!(rule("datadir"), None);
        assert_eq!(rule(""), None);
    }
}
