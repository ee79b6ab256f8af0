//! Shared code of the drivers of shards in memory: configurations of the actors, and frames as clients send them.

use std::net::{Ipv4Addr, SocketAddr};

use corral_core::apply::StateMachine;
use corral_core::ids::{Millis, ServerId, ShardId, WallMillis};
use corral_core::limits::ShardLimits;
use corral_core::sequencer::reaper::ReapPolicy;
use corral_core::sequencer::{Sequencer, SequencerConfig};
use corral_core::shard::ShardConfig;
use corral_wire::OpCode;
use corral_wire::consts::{XID_AUTH, XID_PING, XID_SET_WATCHES};
use corral_wire::fourletter::FourLetter;

use crate::request;

const SERVER: ServerId = ServerId(1);
const INCARNATION: u64 = 7;

/// A shard that serves every operation and every four-letter command but `dump`.
pub(super) fn shard_config(shard: usize, limits: ShardLimits) -> ShardConfig {
    ShardConfig {
        shard: ShardId(u16::try_from(shard).expect("one or two")),
        server: SERVER,
        incarnation: INCARNATION,
        session_timeout_min_ms: 4_000,
        session_timeout_max_ms: 40_000,
        sessionless_timeout_ms: 2_000,
        whitelist: FourLetter::ALL.iter().copied().filter(|word| *word != FourLetter::Dump).collect(),
        keeper_extensions: true,
        limits,
        ..ShardConfig::default()
    }
}

/// The leader's sequencer, without snapshots of its own accord.
pub(super) fn sequencer(features: u32, batch_bytes_max: usize, machine: StateMachine) -> Sequencer {
    let config = SequencerConfig {
        server: SERVER,
        incarnation: INCARNATION,
        features,
        batch_bytes_max,
        reap: ReapPolicy { check_interval_ms: 1000, deletes_per_minute_max: 600, never_used_max_ms: 5000 },
        ..SequencerConfig::default()
    };
    let mut sequencer = Sequencer::new(config, machine, 0, 0);
    sequencer.begin_leadership(Millis(0), 1);
    sequencer
}

pub(super) fn wall(now: Millis) -> WallMillis {
    WallMillis(1_700_000_000_000 + now.0.cast_signed())
}

/// The address of the client of a connection, and the entropy of its session's password.
pub(super) fn client(accepted: u64) -> (SocketAddr, [u8; 16]) {
    let [.., low] = accepted.to_be_bytes();
    let mut entropy = [0x5a; 16];
    entropy[..8].copy_from_slice(&accepted.to_be_bytes());
    (SocketAddr::from((Ipv4Addr::new(127, 0, 0, 1 + low % 2), 1000 + u16::from(low))), entropy)
}

/// A request with the next xid, or the one reserved for its operation.
pub(super) fn request(op: OpCode, body: &[u8], last_xid: &mut i32) -> Vec<u8> {
    let xid = match op {
        OpCode::Ping => XID_PING,
        OpCode::Auth => XID_AUTH,
        OpCode::SetWatches | OpCode::SetWatches2 => XID_SET_WATCHES,
        _ => {
            *last_xid += 1;
            *last_xid
        }
    };
    request::request(xid, op.number(), body)
}
