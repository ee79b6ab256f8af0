//! The leader's deadlines: when each session ends unless it is active, and which report that takes.
//!
//! On the consensus actor's core of the leader, in its memory alone: a new leader starts every deadline afresh. A
//! session expires only if it was reported inactive. The shard that holds the connection, or its server, must have sent
//! a session activity report that is complete up to the deadline. All times are the leader's own clock.

use crate::ids::{Millis, ServerId, SessionId, ShardId};
use crate::limits::SESSIONS_PIECE;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// Starts of other servers that one leadership keeps an account of: the sessions of others are not reported.
const STARTS_MAX: usize = 16 * 1024;

/// The shard or server that has a session's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// A shard of this server.
    Shard(ShardId),
    /// Another server, by its place among the servers of [`Expiry::server`].
    Server(u16),
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    active_at: Millis,
    /// The bucket that speaks for the session; entries in other buckets are stale.
    placed: u64,
    timeout_ms: u32,
    witness: Option<Witness>,
}

/// One start of another server.
#[derive(Clone, Copy, Debug)]
struct Remote {
    server: ServerId,
    /// Its reports name every session that it heard from before this time.
    complete: Millis,
    /// When it was last heard of itself.
    reported_at: Millis,
    /// No session of its is thought to have been silent before this time: reports may have been lost on the way.
    since: Millis,
    /// It sends no reports any more: its sessions have a full timeout from `since`.
    lost: bool,
    /// The value of `since` before its reports stopped: if these were only late, none of them is lost.
    late: Option<Millis>,
}

/// Deadlines by session, in several tables, so that growing never rehashes all of them in one turn. A table has an
/// eighth of them at most. Tables are of different sizes, so that each grows at another time.
#[derive(Clone, Debug)]
struct Deadlines(Box<[HashMap<SessionId, Deadline, Xxh3DefaultBuilder>]>);

impl Default for Deadlines {
    fn default() -> Self {
        Self((0..Self::TABLES).map(|_| HashMap::with_hasher(Xxh3DefaultBuilder::new())).collect())
    }
}

impl Deadlines {
    const BITS: u32 = 6;
    const TABLES: usize = 1 << Self::BITS;

    /// By the square of a number that is as likely as any other: the first tables get more than the last.
    fn place(session: SessionId) -> usize {
        let mixed = session.0.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((mixed * mixed) >> (u64::BITS - Self::BITS)) as usize
    }

    fn of(&self, session: SessionId) -> &HashMap<SessionId, Deadline, Xxh3DefaultBuilder> {
        &self.0[Self::place(session)]
    }

    fn of_mut(&mut self, session: SessionId) -> &mut HashMap<SessionId, Deadline, Xxh3DefaultBuilder> {
        &mut self.0[Self::place(session)]
    }

    fn len(&self) -> usize {
        self.0.iter().map(HashMap::len).sum()
    }
}

/// The deadline of each session, and the reports that its expiry needs.
///
/// A session is in exactly one bucket. A sign of life only notes the time. A bucket that comes due moves its sessions
/// with a sign of life since into a later bucket. So a sign of life costs one map look-up, whatever the number.
#[derive(Clone, Debug)]
pub struct Expiry {
    tick_ms: u64,
    deadlines: Deadlines,
    buckets: BTreeMap<u64, Vec<SessionId>>,
    /// Until when each shard has told us of every session it heard from. A shard that is behind with its reports
    /// cannot report that a session was silent, so its sessions wait for it.
    reported: BTreeMap<ShardId, Millis>,
    remotes: Vec<Remote>,
    /// Their places, by server and incarnation.
    places: BTreeMap<(ServerId, u64), u16>,
    /// A server that has not reported_at for so long is lost. `None`: there are no other servers.
    lost_after_ms: Option<u64>,
}

impl Expiry {
    /// `tick_ms` is the bucket width, at least 1.
    pub fn new(tick_ms: u64) -> Self {
        Self {
            tick_ms: tick_ms.max(1),
            deadlines: Deadlines::default(),
            buckets: BTreeMap::new(),
            reported: BTreeMap::new(),
            remotes: Vec::new(),
            places: BTreeMap::new(),
            lost_after_ms: None,
        }
    }

    /// There are other servers, each taken for lost when it has not reported_at for so long.
    pub fn expect_servers(&mut self, lost_after_ms: u64) {
        self.lost_after_ms = Some(lost_after_ms);
    }

    /// Forgets everything: another server leads, and keeps the deadlines.
    pub fn clear(&mut self) {
        self.deadlines = Deadlines::default();
        self.buckets.clear();
        self.remotes.clear();
        self.places.clear();
    }

    /// Starts or restarts a session's deadline, with a full timeout from `now`.
    pub fn start(&mut self, now: Millis, session: SessionId, timeout_ms: i32, witness: Option<Witness>) {
        let timeout_ms = u32::try_from(timeout_ms).unwrap_or(0);
        let mut deadline = Deadline { timeout_ms, active_at: now, witness, placed: 0 };
        deadline.placed = self.bucket(&deadline);
        self.buckets.entry(deadline.placed).or_default().push(session);
        self.deadlines.of_mut(session).insert(session, deadline);
    }

    /// Forgets a session that has ended. Its place in a bucket goes when the bucket comes due.
    pub fn stop(&mut self, session: SessionId) {
        self.deadlines.of_mut(session).remove(&session);
    }

    /// The session's client is alive. The caller has seen the proof that it is this client: a connection of the
    /// session, or an attach with its password.
    pub fn note_active(&mut self, now: Millis, session: SessionId) {
        if let Some(deadline) = self.deadlines.of_mut(session).get_mut(&session) {
            deadline.active_at = deadline.active_at.max(now);
        }
    }

    /// A shard tells which of its sessions it heard from, and that it has read its sockets up to `at`.
    pub fn report_of_shard(&mut self, shard: ShardId, at: Millis, sessions: &[(SessionId, Millis)]) {
        for (session, active_at) in sessions {
            self.note_active(*active_at, *session);
        }
        let reported = self.reported.entry(shard).or_default();
        *reported = at.max(*reported);
    }

    /// The witness that stands for this start of another server; it counts as heard of when it is first named.
    /// `None`: there are no other servers, or more starts of them than one leadership keeps an account of.
    pub fn server(&mut self, now: Millis, server: ServerId, incarnation: u64) -> Option<Witness> {
        self.lost_after_ms?;
        if let Some(at) = self.places.get(&(server, incarnation)) {
            return Some(Witness::Server(*at));
        }
        let at = u16::try_from(self.remotes.len()).ok().filter(|at| usize::from(*at) < STARTS_MAX)?;
        self.remotes.push(Remote {
            server,
            complete: Millis(0),
            reported_at: now,
            since: now,
            lost: false,
            late: None,
        });
        self.places.insert((server, incarnation), at);
        Some(Witness::Server(at))
    }

    /// Reports of this start of a server come in a new stream. Reports of the former stream may be lost, so that
    /// nothing is known of its sessions' silence until now. Its earlier starts are over.
    pub fn server_begins(&mut self, now: Millis, server: ServerId, incarnation: u64) {
        for remote in self.remotes.iter_mut().filter(|remote| remote.server == server) {
            remote.late = None;
            if !remote.lost {
                (remote.lost, remote.since) = (true, now);
            }
        }
        self.report(now, server, incarnation, Millis(0), &[]);
    }

    /// Another server names the sessions it heard from since its last report, which has come: none is lost on a way.
    /// They count as heard from now, at the receipt of the report. `echo` is a time of the leader that the server knew
    /// before it looked: all sessions heard before then are named.
    pub fn report(&mut self, now: Millis, server: ServerId, incarnation: u64, echo: Millis, sessions: &[SessionId]) {
        for session in sessions {
            self.note_active(now, *session);
        }
        let Some(Witness::Server(at)) = self.server(now, server, incarnation) else { return };
        let remote = &mut self.remotes[usize::from(at)];
        if remote.lost {
            (remote.lost, remote.since) = (false, remote.late.take().unwrap_or(now));
        }
        remote.reported_at = now;
        remote.complete = remote.complete.max(echo.min(now));
    }

    fn note_lost(&mut self, now: Millis) {
        let Some(timeout) = self.lost_after_ms else { return };
        for remote in self.remotes.iter_mut().filter(|remote| !remote.lost) {
            if now.since(remote.reported_at) > timeout {
                remote.late = Some(remote.since);
                (remote.lost, remote.since) = (true, now);
            }
        }
    }

    /// Returns expired sessions, each once. They are no longer tracked afterwards. Checks [`SESSIONS_PIECE`] at most,
    /// and the rest first at the next call.
    pub fn expired(&mut self, now: Millis) -> Vec<SessionId> {
        self.note_lost(now);
        let (mut over, mut left) = (Vec::new(), SESSIONS_PIECE);
        while left > 0
            && let Some(bucket) = self.buckets.first_entry().filter(|bucket| *bucket.key() <= now.0)
        {
            let (due, mut sessions) = bucket.remove_entry();
            let piece = sessions.split_off(sessions.len().saturating_sub(left));
            left -= piece.len();
            if !sessions.is_empty() {
                self.buckets.insert(due, sessions);
            }
            for session in piece {
                let Some(deadline) = self.deadlines.of(session).get(&session).filter(|deadline| deadline.placed == due)
                else {
                    continue;
                };
                let mut next = self.bucket(deadline);
                if next <= due {
                    if !self.report_is_missing(deadline) {
                        self.deadlines.of_mut(session).remove(&session);
                        over.push(session);
                        continue;
                    }
                    // Not before the next look: however late this one is, no session is looked at again and again.
                    next = (due + (self.tick_ms / 8).max(1)).max(now.0 + 1);
                }
                self.buckets.entry(next).or_default().push(session);
                self.deadlines.of_mut(session).entry(session).and_modify(|deadline| deadline.placed = next);
            }
        }
        over
    }

    /// The last sign of life, or the time before which a sign of life may have been lost.
    fn last_active(&self, deadline: &Deadline) -> Millis {
        match deadline.witness {
            Some(Witness::Server(at)) => deadline.active_at.max(self.remotes[usize::from(at)].since),
            _ => deadline.active_at,
        }
    }

    /// `ExpiryQueue.roundToNextInterval`: expiry falls between T and T + tick after the last sign of life.
    fn bucket(&self, deadline: &Deadline) -> u64 {
        (self.last_active(deadline).plus(deadline.timeout_ms.into()).0 / self.tick_ms + 1) * self.tick_ms
    }

    /// Whether the last report is older than the silence it would have to report for.
    fn report_is_missing(&self, deadline: &Deadline) -> bool {
        let silent_since = self.last_active(deadline).plus(deadline.timeout_ms.into());
        match deadline.witness {
            None => false,
            Some(Witness::Shard(shard)) => self.reported.get(&shard).is_none_or(|at| *at < silent_since),
            Some(Witness::Server(at)) => {
                let remote = &self.remotes[usize::from(at)];
                !remote.lost && remote.complete < silent_since
            }
        }
    }

    /// When the session ends unless it is heard from.
    pub fn due(&self, session: SessionId) -> Option<Millis> {
        Some(Millis(self.bucket(self.deadlines.of(session).get(&session)?)))
    }

    /// How many sessions are tracked.
    pub fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const SHARD: ShardId = ShardId(0);

    #[test]
    fn expires_between_timeout_and_timeout_plus_tick() {
        for start in [0, 1, 999, 1000, 1001] {
            let mut expiry = Expiry::new(1000);
            expiry.start(Millis(start), SessionId(7), 4000, None);
            let ended = (start..start + 10_000).find(|ms| !expiry.expired(Millis(*ms)).is_empty());
            let after = ended.map(|ms| ms - start);
            assert!(after.is_some_and(|ms| ms > 4000 - 1 && ms <= 5000), "from {start}: {after:?}");
            assert!(expiry.is_empty());
        }
    }

    #[test]
    fn signs_of_life_postpone() {
        let mut expiry = Expiry::new(100);
        expiry.start(Millis(0), SessionId(1), 400, Some(Witness::Shard(SHARD)));
        expiry.report_of_shard(SHARD, Millis(350), &[(SessionId(1), Millis(350))]);
        expiry.report_of_shard(SHARD, Millis(800), &[]);
        assert_eq!(expiry.expired(Millis(799)), vec![]);
        assert_eq!(expiry.expired(Millis(800)), vec![SessionId(1)]);
        assert_eq!(expiry.expired(Millis(9_000)), vec![]);
    }

    #[test]
    fn a_silent_shard_expires_no_session() {
        let mut expiry = Expiry::new(100);
        expiry.start(Millis(0), SessionId(1), 400, Some(Witness::Shard(SHARD)));
        assert_eq!(expiry.expired(Millis(60_000)), vec![]);
        expiry.report_of_shard(SHARD, Millis(60_001), &[(SessionId(1), Millis(60_000))]);
        assert_eq!(expiry.expired(Millis(60_400)), vec![]);
        expiry.report_of_shard(SHARD, Millis(60_600), &[]);
        assert_eq!(expiry.expired(Millis(60_600)), vec![SessionId(1)]);
    }

    #[test]
    fn a_look_that_comes_late_sees_each_unreported_session_once() {
        let mut expiry = Expiry::new(100);
        (0..1000).for_each(|id| expiry.start(Millis(0), SessionId(id), 400, Some(Witness::Shard(SHARD))));
        for now in [3_600_000, 3_600_100] {
            assert_eq!(expiry.expired(Millis(now)), vec![]);
            assert_eq!(expiry.buckets.keys().copied().collect::<Vec<u64>>(), [now + 1]);
        }
        expiry.report_of_shard(SHARD, Millis(3_600_200), &[]);
        assert_eq!(expiry.expired(Millis(3_600_200)).len(), 1000);
    }

    #[test]
    fn very_many_that_end_at_once_do_so_over_several_looks() {
        const COUNT: usize = 3 * SESSIONS_PIECE + 7;
        let mut expiry = Expiry::new(100);
        (1..).take(COUNT).for_each(|id| expiry.start(Millis(0), SessionId(id), 400, None));
        expiry.start(Millis(100), SessionId(-1), 400, None);
        let looks: Vec<usize> = (0..6).map(|late| expiry.expired(Millis(600 + late)).len()).collect();
        assert_eq!(looks, [SESSIONS_PIECE, SESSIONS_PIECE, SESSIONS_PIECE, 8, 0, 0]);
        assert!(expiry.is_empty() && expiry.buckets.is_empty());
    }

    #[test]
    fn few_deadlines_move_when_many_sessions_start() {
        const TURN: i64 = 8192;
        let mut expiry = Expiry::new(100);
        for from in (0..1_000_000).step_by(8192) {
            let rooms = |expiry: &Expiry| expiry.deadlines.0.iter().map(HashMap::capacity).collect::<Vec<_>>();
            let before = rooms(&expiry);
            let ids = (from..from + TURN).map(|number| SessionId(0x0100_0192_0000_0000 + number));
            ids.for_each(|id| expiry.start(Millis(0), id, 400, None));
            let grown = before.iter().zip(rooms(&expiry)).filter(|(before, after)| *before != after);
            let moved: usize = grown.map(|(before, _)| *before).sum();
            assert!(moved <= 150_000, "{moved} at {from}");
        }
    }

    #[test]
    fn a_shorter_timeout_counts_from_the_renewal() {
        let mut expiry = Expiry::new(100);
        expiry.start(Millis(0), SessionId(1), 40_000, None);
        expiry.start(Millis(50), SessionId(1), 400, None);
        assert_eq!(expiry.expired(Millis(500)), vec![SessionId(1)]);
        assert_eq!(expiry.expired(Millis(90_000)), vec![]);
    }

    #[test]
    fn stopped_sessions_are_gone() {
        let mut expiry = Expiry::new(100);
        expiry.start(Millis(0), SessionId(1), 400, None);
        expiry.stop(SessionId(1));
        assert_eq!(expiry.expired(Millis(10_000)), vec![]);
    }

    /// A leader with one other server that is lost after 300 ms, and a session of 400 ms there.
    fn with_server() -> Expiry {
        let mut expiry = Expiry::new(100);
        expiry.expect_servers(300);
        let there = expiry.server(Millis(0), ServerId(2), 7);
        assert!(there.is_some());
        expiry.start(Millis(0), SessionId(1), 400, there);
        expiry
    }

    #[test]
    fn silence_on_another_server_takes_its_report() {
        let mut expiry = with_server();
        for now in (0..2000).step_by(100) {
            // It is there, but behind: what it says is complete up to 390 only.
            expiry.report(Millis(now), ServerId(2), 7, Millis(now.min(390)), &[]);
            assert_eq!(expiry.expired(Millis(now)), vec![], "at {now}");
        }
        expiry.report(Millis(2000), ServerId(2), 7, Millis(400), &[]);
        assert_eq!(expiry.expired(Millis(2000)), vec![SessionId(1)]);
    }

    #[test]
    fn a_session_of_another_server_counts_from_its_report() {
        let mut expiry = with_server();
        expiry.report(Millis(290), ServerId(2), 7, Millis(100), &[SessionId(1)]);
        expiry.report(Millis(590), ServerId(2), 7, Millis(580), &[]);
        assert_eq!(expiry.expired(Millis(600)), vec![]);
        expiry.report(Millis(790), ServerId(2), 7, Millis(780), &[]);
        assert_eq!(expiry.due(SessionId(1)), Some(Millis(700)));
        assert_eq!(expiry.expired(Millis(790)), vec![SessionId(1)]);
    }

    #[test]
    fn an_echo_from_the_future_is_no_report() {
        let mut expiry = with_server();
        expiry.report(Millis(100), ServerId(2), 7, Millis(1_000_000), &[]);
        expiry.report(Millis(390), ServerId(2), 7, Millis(0), &[]);
        assert_eq!(expiry.expired(Millis(500)), vec![]);
    }

    #[test]
    fn a_server_that_is_lost_gives_its_sessions_a_full_timeout() {
        let mut expiry = with_server();
        expiry.report(Millis(250), ServerId(2), 7, Millis(240), &[]);
        for now in (300..1000).step_by(50) {
            // Lost at 600, the first look later than 550.
            assert_eq!(expiry.expired(Millis(now)), vec![], "at {now}");
        }
        assert_eq!(expiry.due(SessionId(1)), Some(Millis(1100)));
        assert_eq!(expiry.expired(Millis(1100)), vec![SessionId(1)]);
    }

    #[test]
    fn a_server_that_comes_back_on_a_new_way_reports_afresh() {
        let mut expiry = with_server();
        assert_eq!(expiry.expired(Millis(350)), vec![]);
        // No report names the sessions that it heard while its reports were lost.
        expiry.server_begins(Millis(700), ServerId(2), 7);
        expiry.report(Millis(700), ServerId(2), 7, Millis(690), &[]);
        assert_eq!(expiry.expired(Millis(900)), vec![]);
        expiry.report(Millis(1000), ServerId(2), 7, Millis(990), &[]);
        assert_eq!(expiry.expired(Millis(1050)), vec![]);
        expiry.report(Millis(1200), ServerId(2), 7, Millis(1190), &[]);
        assert_eq!(expiry.expired(Millis(1200)), vec![SessionId(1)]);
    }

    /// It was given a full timeout whenever its server's reports were late, and outlived its client for ever.
    #[test]
    fn a_server_whose_reports_are_late_now_and_then_reports_all_the_same() {
        let mut expiry = with_server();
        for now in [350, 700] {
            assert_eq!(expiry.expired(Millis(now - 10)), vec![], "at {now}");
            expiry.report(Millis(now), ServerId(2), 7, Millis(now - 20), &[]);
        }
        expiry.report(Millis(1000), ServerId(2), 7, Millis(980), &[]);
        // It was looked at while its server was taken for lost, since 690.
        assert_eq!(expiry.expired(Millis(1100)), vec![SessionId(1)]);
    }

    #[test]
    fn reports_on_a_new_way_say_nothing_of_those_lost_on_the_old() {
        let mut expiry = with_server();
        expiry.report(Millis(300), ServerId(2), 7, Millis(290), &[]);
        expiry.server_begins(Millis(380), ServerId(2), 7);
        expiry.report(Millis(500), ServerId(2), 7, Millis(490), &[]);
        expiry.report(Millis(700), ServerId(2), 7, Millis(690), &[]);
        assert_eq!(expiry.expired(Millis(770)), vec![]);
        expiry.report(Millis(800), ServerId(2), 7, Millis(790), &[]);
        assert_eq!(expiry.expired(Millis(800)), vec![SessionId(1)]);
    }

    #[test]
    fn a_server_that_started_again_speaks_for_its_new_sessions_only() {
        let mut expiry = with_server();
        expiry.server_begins(Millis(300), ServerId(2), 8);
        let there = expiry.server(Millis(300), ServerId(2), 8);
        expiry.start(Millis(310), SessionId(2), 400, there);
        for now in (400..2000).step_by(100) {
            expiry.report(Millis(now), ServerId(2), 8, Millis(now - 10), &[SessionId(2)]);
            let over = expiry.expired(Millis(now));
            let expected = if now == 800 { vec![SessionId(1)] } else { vec![] };
            assert_eq!(over, expected, "at {now}");
        }
    }

    #[test]
    fn a_leader_that_stalled_itself_ends_no_session() {
        let mut expiry = with_server();
        expiry.start(Millis(0), SessionId(3), 400, Some(Witness::Shard(SHARD)));
        assert_eq!(expiry.expired(Millis(60_000)), vec![]);
        // Then what waited in its mailbox is looked at.
        expiry.report(Millis(60_001), ServerId(2), 7, Millis(100), &[SessionId(1)]);
        expiry.report_of_shard(SHARD, Millis(60_001), &[(SessionId(3), Millis(60_000))]);
        assert_eq!(expiry.expired(Millis(60_300)), vec![]);
    }
}
