//! Lines of `mntr`.

use super::*;
use crate::ids::{Millis, ServerId, WallMillis};
use crate::report::facts::{Moment, ServerFacts, Timing};
use crate::report::gathered::Report;
use crate::shard::pieces::{Piece, Totals};
use alloc::vec;
use corral_wire::fourletter::FourLetter;

fn told(totals: Totals, facts: ServerFacts) -> String {
    let moment = Moment { now: Millis(7), wall: WallMillis(0) };
    let mut report = Report::default();
    report.take(FourLetter::Mntr, Piece { totals, ..Piece::default() });
    text(&Gathered { report, facts, moment })
}

#[test]
fn summaries_as_zookeeper_prints_them() {
    let mut totals = Totals::default();
    for ms in [0, 14, 1] {
        totals.statistics.reads.note(ms);
    }
    let syncs = Timing { count: 4, us_sum: 5000, us_min: 400, us_max: 3600 };
    let text = told(totals, ServerFacts { syncs, ..ServerFacts::default() });
    let expect = "zk_avg_readlatency\t5.0\nzk_min_readlatency\t0\nzk_max_readlatency\t14\nzk_cnt_readlatency\t3\n\
                  zk_sum_readlatency\t15\nzk_p50_readlatency\t0.0\n";
    assert!(text.contains(expect), "{text}");
    let expect = "zk_avg_fsynctime\t1.25\nzk_min_fsynctime\t0\nzk_max_fsynctime\t3\nzk_cnt_fsynctime\t4\n\
                  zk_sum_fsynctime\t5\nzk_avg_snapshottime\t0.0\nzk_min_snapshottime\t0\nzk_max_snapshottime\t0\n\
                  zk_cnt_snapshottime\t0\nzk_sum_snapshottime\t0\n";
    assert!(text.contains(expect), "{text}");
}

#[test]
fn every_line_is_a_key_and_a_value_and_none_comes_twice() {
    let peers = [3, 5].map(|id| PeerFacts { id: ServerId(id), ..PeerFacts::default() }).to_vec();
    let facts = ServerFacts { peers, quorum: Some(Quorum::default()), ..ServerFacts::default() };
    let text = told(Totals::default(), facts);
    let mut keys: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('\t')?.0)).collect();
    assert_eq!(keys.len(), text.lines().count());
    for key in ["zk_peer_3_connected", "zk_peer_5_dials_failed", "zk_quorum_size", "zk_uptime"] {
        assert!(keys.contains(&key), "{key}");
    }
    keys.sort_unstable();
    assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "{keys:?}");
}

#[test]
fn only_the_leader_counts_those_that_keep_up() {
    let quorum = Some(Quorum { size: 3, learners: 2, ..Quorum::default() });
    for (mode, learners) in [(Mode::Leader, vec!["zk_learners\t2"]), (Mode::Follower, vec![])] {
        let text = told(Totals::default(), ServerFacts { mode, quorum, ..ServerFacts::default() });
        let found: Vec<&str> = text.lines().filter(|line| line.starts_with("zk_learners")).collect();
        assert_eq!(found, learners);
    }
}

#[test]
fn histograms_have_a_name_for_each_label() {
    let quantiles = Quantiles { p50: 120, p90: 0, p95: 2500, p99: 30_000, p999: 1_000_000 };
    let times = Histogram { count: 3, us_sum: 400, quantiles, ..Histogram::default() };
    let latencies = LatencyFacts { operations: vec![("getData", times)], ..LatencyFacts::default() };
    let text = told(Totals::default(), ServerFacts { latencies, ..ServerFacts::default() });
    let expect = "zk_cnt_getData_request_ms\t3\nzk_avg_getData_request_ms\t0.1333\nzk_p50_getData_request_ms\t0.12\n\
                  zk_p95_getData_request_ms\t2.5\nzk_p99_getData_request_ms\t30.0\nzk_p999_getData_request_ms\t1000.0\n";
    assert!(text.contains(expect), "{text}");
}
