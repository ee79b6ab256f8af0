//! Pieces of a shard, all of an answer.

use super::*;
use crate::ids::ConnId;
use crate::shard::Shard;
use crate::shard::tests::{client, shard};
use crate::shard::watch::{Kind, Mode};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

/// Asks until there is no more.
fn pieces(shard: &mut Shard, command: FourLetter) -> Vec<Piece> {
    let (mut pieces, mut from) = (Vec::new(), Some(0));
    while let Some(at) = from {
        let piece = shard.report(command, at);
        from = piece.next;
        pieces.push(piece);
    }
    pieces
}

/// Watched paths by their hashes, watches, and pieces.
fn counted(shard: &mut Shard) -> (usize, usize, usize) {
    let pieces = pieces(shard, FourLetter::Wchs);
    let watched = || pieces.iter().flat_map(|piece| &piece.watched);
    let paths: BTreeSet<u64> = watched().map(|one| one.hash).collect();
    (paths.len(), watched().map(|one| one.watchers.len()).sum(), pieces.len())
}

fn accept(shard: &mut Shard, count: usize) -> Vec<ConnId> {
    (0..count).map(|_| client(shard)).collect()
}

#[test]
fn every_connection_is_told_of_once() {
    for (count, expect) in [(0, 1), (1, 1), (PIECE_ENTRIES, 1), (PIECE_ENTRIES + 1, 2), (3 * PIECE_ENTRIES, 3)] {
        let mut shard = shard();
        accept(&mut shard, count);
        for command in [FourLetter::Cons, FourLetter::Stat] {
            let pieces = pieces(&mut shard, command);
            let lines: usize = pieces.iter().map(|piece| piece.conns.len()).sum();
            assert_eq!((lines, pieces.len()), (count, expect), "{command:?}");
        }
        let pieces = pieces(&mut shard, FourLetter::Srvr);
        let connections: u64 = pieces.iter().map(|piece| piece.totals.connections).sum();
        assert_eq!((connections, pieces.iter().map(|piece| piece.totals.outstanding).sum()), (count as u64, 0_u64));
    }
}

#[test]
fn every_watch_is_told_of_once() {
    let mut shard = shard();
    let conns = accept(&mut shard, 3);
    let count = 2 * PIECE_ENTRIES;
    for (number, conn) in conns.iter().enumerate() {
        shard.state.conns.get_mut(*conn).expect("it is there").session.attach(SessionId(1 + number as i64), 1000);
        for at in 0..count {
            let path = format!("/{at}");
            let hash = shard.state.view.hasher().hash(&path);
            let mode = [Mode::Standard, Mode::Persistent, Mode::PersistentRecursive][at % 3];
            assert!(shard.state.watches.add(Kind::Data, *conn, &path, hash, mode).is_ok());
            assert!(shard.state.watches.add(Kind::Child, *conn, "/kids", 1, Mode::Standard).is_ok());
        }
    }
    let (paths, watches, passes) = counted(&mut shard);
    assert_eq!((paths, watches), (count, 3 * count));
    assert!(passes > 4, "a piece is short: {passes}");
    for command in [FourLetter::Wchp, FourLetter::Wchc] {
        let pieces = pieces(&mut shard, command);
        let watched = pieces.iter().flat_map(|piece| &piece.watched);
        let pairs: Vec<(&str, SessionId)> =
            watched.flat_map(|one| one.watchers.iter().map(|session| (&*one.path, *session))).collect();
        let different: BTreeSet<&(&str, SessionId)> = pairs.iter().collect();
        assert_eq!((pairs.len(), different.len()), (3 * count, 3 * count));
        assert!(pairs.iter().all(|(path, _)| *path != "/kids"));
    }
}

#[test]
fn long_paths_are_told_of_in_many_pieces() {
    let mut shard = shard();
    let conn = accept(&mut shard, 1)[0];
    shard.state.conns.get_mut(conn).expect("it is there").session.attach(SessionId(1), 1000);
    for at in 0..20 {
        let path = format!("/{at}{}", "n".repeat(PIECE_PATH_BYTES));
        let hash = shard.state.view.hasher().hash(&path);
        assert!(shard.state.watches.add(Kind::Data, conn, &path, hash, Mode::Standard).is_ok());
    }
    for command in [FourLetter::Wchs, FourLetter::Wchp] {
        let pieces = pieces(&mut shard, command);
        let paths: usize = pieces.iter().map(|piece| piece.watched.len()).sum();
        assert!(paths == 20 && pieces.len() >= 20, "{paths} paths in {} pieces", pieces.len());
    }
}

#[test]
fn a_path_that_many_watch_is_told_of_in_many_pieces() {
    const WATCHERS: usize = 3 * PIECE_ENTRIES;
    let mut shard = shard();
    let hash = shard.state.view.hasher().hash("/a");
    for (number, conn) in accept(&mut shard, WATCHERS).into_iter().enumerate() {
        shard.state.conns.get_mut(conn).expect("it is there").session.attach(SessionId(1 + number as i64), 1000);
        assert!(shard.state.watches.add(Kind::Data, conn, "/a", hash, Mode::Standard).is_ok());
    }
    assert_eq!(counted(&mut shard), (1, WATCHERS, 3));
}

#[test]
fn sets_that_watch_children_alone_are_passed_over() {
    const PATHS: usize = 300;
    let mut shard = shard();
    for (number, conn) in accept(&mut shard, 3 * PIECE_ENTRIES).into_iter().enumerate() {
        shard.state.conns.get_mut(conn).expect("it is there").session.attach(SessionId(1 + number as i64), 1000);
        for at in 0..PATHS {
            let path = format!("/{at}");
            let hash = shard.state.view.hasher().hash(&path);
            assert!(shard.state.watches.add(Kind::Child, conn, &path, hash, Mode::Standard).is_ok());
            // The last one's data is watched by the last connection, too.
            if at == PATHS - 1 && number == 3 * PIECE_ENTRIES - 1 {
                assert!(shard.state.watches.add(Kind::Data, conn, &path, hash, Mode::Standard).is_ok());
            }
        }
    }
    assert_eq!(counted(&mut shard), (1, 1, 3), "only the set with a watch of data is looked at, in pieces");
}

#[test]
fn a_table_that_shrank_is_passed_over_quickly() {
    let mut shard = shard();
    let conn = accept(&mut shard, 1)[0];
    for at in 0..100_000_u64 {
        assert!(shard.state.watches.add(Kind::Data, conn, &format!("/{at}"), at << 40 | at, Mode::Standard).is_ok());
    }
    for at in 0..100_000_u64 {
        let hash = at << 40 | at;
        assert!(shard.state.watches.remove(Kind::Data, conn, &format!("/{at}"), hash, Mode::Standard));
    }
    let (paths, watches, passes) = counted(&mut shard);
    assert_eq!((paths, watches), (0, 0));
    assert!(passes <= 4, "{passes}");
}

#[test]
fn counters_begin_anew() {
    let mut shard = shard();
    let conns = accept(&mut shard, PIECE_ENTRIES + 5);
    for conn in &conns {
        shard.state.conns.get_mut(*conn).expect("it is there").counters.received = 7;
    }
    shard.state.statistics.received = 9;
    pieces(&mut shard, FourLetter::Crst);
    assert!(shard.state.conns.iter().all(|conn| conn.counters.received == 0 && conn.counters.last_xid == -1));
    assert_eq!(shard.state.statistics.received, 9);
    pieces(&mut shard, FourLetter::Srst);
    assert_eq!(shard.state.statistics.received, 0);
}
