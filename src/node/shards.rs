//! The settings of the shards, from the configuration.

use corral_core::limits::ShardLimits;
use corral_core::rate::Rate;
use corral_core::shard::ShardConfig;
use corral_core::shared::Text;
use corral_core::tree::acl::AnySaslUser;
use corral_wire::fourletter::FourLetter;

use crate::config::Config;
use crate::config::digests::hash;

/// The settings of each of so many shards, but for those of one process or of one shard.
pub(super) fn configured(config: &Config, shards: usize) -> ShardConfig {
    let Config { ensemble, sessions, limits, rate_limits: rates, commands, features, security, .. } = config;
    let timeout = |ms: u32| i32::try_from(ms).unwrap_or(i32::MAX);
    // Clients of a read-only server ask all others with `isro` whether they may write there.
    let allowed = |word: &&FourLetter| {
        **word == FourLetter::Isro && ensemble.read_only
            || commands.four_letter_whitelist.allows(word.name().as_bytes())
    };
    ShardConfig {
        server: config.own_id(),
        session_timeout_min_ms: timeout(sessions.timeout_min_ms),
        session_timeout_max_ms: timeout(sessions.timeout_max_ms),
        sessionless_timeout_ms: u64::from(sessions.sessionless_timeout_ms),
        whitelist: FourLetter::ALL.iter().filter(allowed).copied().collect(),
        digest: security.digest_scheme.then(|| hash(security.digest_algorithm)),
        super_digest: Some(&security.super_digest.0)
            .filter(|digest| !digest.is_empty())
            .map(|text| Text::from(&**text)),
        x509_super: Some(&security.x509_super_user.0)
            .filter(|subject| !subject.is_empty())
            .map(|text| Text::from(&**text)),
        skip_acl: security.skip_acl,
        enforce_schemes: security.enforce_schemes.0.iter().map(|scheme| Text::from(&**scheme)).collect(),
        sasl_super_users: security.sasl_super_users.0.iter().map(|name| Text::from(&**name)).collect(),
        any_sasl_user: Some(&security.sasl_any_user.0)
            .filter(|name| !name.is_empty())
            .map(|name| AnySaslUser::named(name)),
        allow_sasl_failed: security.allow_sasl_failed_clients,
        audit: config.audit.enabled,
        slow_request_ms: Some(config.logging.slow_request_ms).filter(|ms| *ms > 0).map_or(u64::MAX, u64::from),
        keeper_extensions: features.keeper_extensions,
        read_only: ensemble.read_only,
        linearizable: ensemble.linearizable_reads,
        limits: ShardLimits {
            frame_bytes_max: limits.frame_bytes_max as usize,
            requests_in_flight_per_connection_max: limits.requests_in_flight_per_connection_max as usize,
            reply_buffer_bytes_soft_max: limits.reply_buffer_bytes_soft_max as usize,
            reply_buffer_bytes_hard_max: limits.reply_buffer_bytes_hard_max as usize,
            inflight_bytes_per_shard_max: usize::try_from(limits.inflight_bytes_per_shard_max).unwrap_or(usize::MAX),
            watches_per_connection_max: limits.watches_per_connection_max as usize,
            watch_bytes_per_connection_max: limits.watch_bytes_per_connection_max as usize,
            watch_bytes_total_max: usize::try_from(limits.watch_bytes_total_max).unwrap_or(usize::MAX) / shards.max(1),
            identities_per_connection_max: limits.identities_per_connection_max as usize,
            sessions_max: u64::from(limits.sessions_max),
            reply_buffer_bytes_total_max: usize::try_from(limits.reply_buffer_bytes_total_max).unwrap_or(usize::MAX)
                / shards.max(1),
            requests_in_flight_max: share(limits.requests_in_flight_max, shards).unwrap_or(usize::MAX),
            throttled_op_wait_ms: u64::from(limits.throttled_op_wait_ms),
            request_rate: Rate::per_second(rates.requests_per_second.into(), rates.burst_ms.into()),
            byte_rate: Rate::per_second(rates.bytes_per_second, rates.burst_ms.into()),
            large_request_bytes: limits.large_request_bytes as usize,
            large_requests_bytes_max: share(limits.large_requests_bytes_max, shards)
                .map_or(usize::MAX, |share| share.max(limits.frame_bytes_max as usize)),
            ..ShardLimits::default()
        },
        ..ShardConfig::default()
    }
}

/// One shard's share of a limit of the whole server, at least 1; `None` for 0, which is no limit.
fn share(whole: u32, shards: usize) -> Option<usize> {
    (whole > 0).then(|| (whole as usize).div_ceil(shards.max(1)))
}
