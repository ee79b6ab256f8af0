//! Making attacks, and growing them: lengths double, pieces repeat and nest, paths that were used are used again.
//!
//! Knows the grammar of requests and the words of the protocol, and no known attack.

use corral_wire::OpCode;

use super::genome::{Acl, Call, Gene, Genome, Path, Tree, Vary};
use crate::rng::Stream;

/// What requests are drawn from.
const OPS: [OpCode; 26] = [
    OpCode::Create,
    OpCode::Create,
    OpCode::Create2,
    OpCode::CreateTtl,
    OpCode::CreateContainer,
    OpCode::Delete,
    OpCode::Delete,
    OpCode::SetData,
    OpCode::SetAcl,
    OpCode::SetAcl,
    OpCode::GetAcl,
    OpCode::GetData,
    OpCode::Exists,
    OpCode::GetChildren,
    OpCode::GetChildren2,
    OpCode::GetEphemerals,
    OpCode::GetAllChildrenNumber,
    OpCode::SetWatches,
    OpCode::SetWatches2,
    OpCode::AddWatch,
    OpCode::RemoveWatches,
    OpCode::CheckWatches,
    OpCode::Sync,
    OpCode::WhoAmI,
    OpCode::Ping,
    OpCode::CloseSession,
];
const KEEPERS: [OpCode; 7] = [
    OpCode::FilteredList,
    OpCode::FilteredListWithStatsAndData,
    OpCode::CheckNotExists,
    OpCode::CreateIfNotExists,
    OpCode::RemoveRecursive,
    OpCode::ListRecursive,
    OpCode::TryRemove,
];
const WRITES: [OpCode; 6] =
    [OpCode::Create, OpCode::Create2, OpCode::Delete, OpCode::SetData, OpCode::Check, OpCode::SetAcl];
const READS: [OpCode; 2] = [OpCode::GetData, OpCode::GetChildren];
/// Names that mean something to the protocol, and some of the trees'.
const NAMES: [&str; 16] = [
    "/",
    "/a",
    "/a",
    "/a/",
    "/a/b",
    "/a/n",
    "/b",
    "/c",
    "/wide",
    "/wide/n1",
    "/large",
    "/large/1",
    "/zookeeper/quota",
    "/zookeeper/quota/zookeeper_stats",
    "/zookeeper/quota/a/zookeeper_stats",
    "/zookeeper/quota/zookeeper_limits",
];
const ACLS: [(&str, &str); 7] = [
    ("ip", "10.0.0.1/32"),
    ("ip", "10.0.0.1"),
    ("ip", "127.0.0.1/32"),
    ("digest", "u1:h"),
    ("auth", ""),
    ("world", "anyone"),
    ("sasl", "u1"),
];

/// A new attack of a few steps.
pub(super) fn genome(stream: &mut Stream) -> Genome {
    let tree = stream.pick(&[Tree::Small, Tree::Small, Tree::Wide, Tree::Large]);
    let keeper = stream.per_mille(200);
    let mut genes: Vec<Gene> = (0..=stream.below(5)).map(|_| gene(stream, keeper)).collect();
    // Most of an attack is about one place.
    let (home, mut calls) = (path(stream), Vec::new());
    genes.iter_mut().for_each(|gene| collect(gene, &mut calls));
    for call in calls {
        if stream.per_mille(600) {
            call.path = home.clone();
        }
    }
    Genome { tree, keeper, prepare: Vec::new(), genes }
}

fn gene(stream: &mut Stream, keeper: bool) -> Gene {
    let client = stream.pick(&[0, 0, 0, 0, 1, 2]);
    match stream.below(100) {
        0..62 => {
            let ops: &[OpCode] = if keeper && stream.per_mille(500) { &KEEPERS } else { &OPS };
            Gene::Call(client, call(stream, ops))
        }
        62..72 => many(stream, client, false),
        72..78 => many(stream, client, true),
        78..83 => {
            let user = stream.pick(&["u1:p", "u:", "super:x"]);
            let scheme = stream.pick(&["digest", "digest", "ip", "sasl"]);
            Gene::Auth { client, scheme: scheme.into(), user: user.into(), pad: length(stream) }
        }
        83..87 => Gene::Repeat(number(stream), vec![gene(stream, keeper), gene(stream, keeper)]),
        87..90 => Gene::Burst(number(stream), vec![gene(stream, keeper), gene(stream, keeper)]),
        90..92 => Gene::Fleet(number(stream), vec![gene(stream, keeper)]),
        92..94 => Gene::Attach(client, stream.pick(&[0, 1, 2]), stream.per_mille(500)),
        94..96 => Gene::StopReading(client),
        96..97 => Gene::HangUp(client),
        97..99 => Gene::Pass(stream.pick(&[1000, 60_000])),
        _ => Gene::Snapshot,
    }
}

fn many(stream: &mut Stream, client: u8, read: bool) -> Gene {
    let ops: &[OpCode] = if read { &READS } else { &WRITES };
    let calls = (0..=stream.below(3)).map(|_| call(stream, ops)).collect();
    Gene::Many { client, read, times: number(stream), calls }
}

fn call(stream: &mut Stream, ops: &[OpCode]) -> Call {
    let op = stream.pick(ops);
    let create = matches!(op, OpCode::Create | OpCode::Create2);
    let usual: &[i32] = match op {
        _ if create => &[0, 0, 0, 1, 1, 2],
        OpCode::CreateTtl => &[5],
        OpCode::CreateContainer => &[4],
        OpCode::CreateIfNotExists => &[0],
        OpCode::AddWatch => &[0, 1, 1],
        OpCode::RemoveWatches | OpCode::CheckWatches => &[1, 2, 3, 5],
        OpCode::FilteredList | OpCode::FilteredListWithStatsAndData => &[0, 1, 2],
        OpCode::RemoveRecursive | OpCode::ListRecursive => &[100, 100_000],
        _ => &[-1, -1, 0],
    };
    Call {
        op: op.number(),
        path: path(stream),
        data: length(stream),
        text: stream.per_mille(100).then(|| stream.pick(&["count=1,bytes=1", "count=9,bytes=-1"]).to_owned()),
        acl: stream.per_mille(350).then(|| acl(stream)),
        number: stream.pick(usual),
        flag: stream.per_mille(400),
        count: number(stream),
    }
}

fn path(stream: &mut Stream) -> Path {
    let seldom = |stream: &mut Stream, share| if stream.per_mille(share) { 1 + length(stream) } else { 0 };
    Path {
        name: stream.pick(&NAMES).to_owned(),
        pad: seldom(stream, 100),
        levels: seldom(stream, 120),
        numbered: stream.per_mille(250),
        deeper: stream.per_mille(40),
    }
}

fn acl(stream: &mut Stream) -> Acl {
    let (scheme, id) = stream.pick(&ACLS);
    Acl {
        perms: stream.pick(&[31, 31, 1, 16]),
        run_at: u32::try_from(stream.below(12)).unwrap_or(0),
        run: if stream.per_mille(300) { length(stream) } else { 0 },
        run_of: stream.pick(&['0', '0', 'x', '.', ':', ' ']),
        count: stream.pick(&[1, 1, 2, 8]),
        vary: stream.pick(&[Vary::Nothing, Vary::Perms, Vary::Id]),
        open: stream.per_mille(500),
        ..Acl::one(31, scheme, id)
    }
}

fn number(stream: &mut Stream) -> u32 {
    stream.pick(&[1, 1, 2, 3, 5, 10, 30])
}

fn length(stream: &mut Stream) -> u32 {
    stream.pick(&[0, 0, 1, 5, 20, 100, 1000])
}

/// Changes an attack a little, or mixes it with another.
pub(super) fn change(stream: &mut Stream, genome: &mut Genome, other: &Genome) {
    for _ in 0..=stream.below(3) {
        change_once(stream, genome, other);
    }
}

fn change_once(stream: &mut Stream, genome: &mut Genome, other: &Genome) {
    let keeper = genome.keeper;
    let genes = &mut genome.genes;
    let at = stream.index(genes.len() + 1);
    match stream.below(20) {
        0..9 => {
            if let Some(gene) = genes.get_mut(at) {
                change_gene(stream, gene);
            }
        }
        9 => genes.insert(at, gene(stream, keeper)),
        10 if genes.len() > 1 => drop(genes.splice(at.min(genes.len() - 1)..=at.min(genes.len() - 1), [])),
        11 if at < genes.len() => genes.insert(at, genes[at].clone()),
        12 if at < genes.len() => {
            let end = (at + 1 + stream.index(3)).min(genes.len());
            let inner: Vec<Gene> = genes.drain(at..end).collect();
            let times = number(stream);
            let wrapped = if stream.per_mille(500) { Gene::Repeat(times, inner) } else { Gene::Burst(times, inner) };
            genes.insert(at, wrapped);
        }
        13 | 14 => {
            let from = stream.index(other.genes.len().max(1));
            let piece = other.genes.iter().skip(from).take(1 + stream.index(4)).cloned();
            drop(genes.splice(at..at, piece.collect::<Vec<_>>()));
        }
        15 if genes.len() > 1 => {
            let to = stream.index(genes.len());
            genes.swap(at.min(to), to);
        }
        16 | 17 => reuse(stream, genes),
        18 => genome.tree = stream.pick(&[Tree::Small, Tree::Wide, Tree::Large]),
        _ => {}
    }
    genome.genes.truncate(40);
}

/// A call asks for what another one asks for: the same path, and perhaps the same ACL.
fn reuse(stream: &mut Stream, genes: &mut [Gene]) {
    let mut calls = Vec::new();
    genes.iter_mut().for_each(|gene| collect(gene, &mut calls));
    if calls.len() < 2 {
        return;
    }
    let (from, to) = (stream.index(calls.len()), stream.index(calls.len()));
    let model = calls[from].clone();
    let target = &mut calls[to];
    target.path = model.path;
    if stream.per_mille(300) {
        target.acl = model.acl;
    }
}

fn collect<'g>(gene: &'g mut Gene, calls: &mut Vec<&'g mut Call>) {
    match gene {
        Gene::Call(_, call) => calls.push(call),
        Gene::Many { calls: list, .. } => calls.extend(list),
        Gene::Repeat(_, list) | Gene::Burst(_, list) | Gene::Fleet(_, list) => {
            list.iter_mut().for_each(|gene| collect(gene, calls));
        }
        _ => {}
    }
}

fn change_gene(stream: &mut Stream, gene: &mut Gene) {
    match gene {
        Gene::Call(client, call) => {
            if stream.per_mille(50) {
                *client = stream.pick(&[0, 1, 2]);
            }
            change_call(stream, call);
            if stream.per_mille(80) {
                let (client, mut call) = (*client, call.clone());
                let read = matches!(call.op(), Some(OpCode::GetData | OpCode::GetChildren));
                if !read && stream.per_mille(400) {
                    call.op = OpCode::Check.number();
                }
                *gene = Gene::Many { client, read, times: number(stream), calls: vec![call] };
            }
        }
        Gene::Many { read, times, calls, .. } => {
            if stream.per_mille(400) || calls.is_empty() {
                scale(stream, times);
            } else {
                let at = stream.index(calls.len());
                change_call(stream, &mut calls[at]);
            }
            if stream.per_mille(100) {
                calls.push(call(stream, if *read { &READS } else { &WRITES }));
            } else if stream.per_mille(50) && calls.len() > 1 {
                calls.pop();
            }
        }
        Gene::Auth { pad, .. } => scale(stream, pad),
        Gene::Repeat(times, genes) | Gene::Burst(times, genes) | Gene::Fleet(times, genes) => {
            if stream.per_mille(500) || genes.is_empty() {
                scale(stream, times);
            } else {
                let at = stream.index(genes.len());
                change_gene(stream, &mut genes[at]);
            }
        }
        Gene::Pass(ms) => scale(stream, ms),
        _ => {}
    }
}

fn change_call(stream: &mut Stream, call: &mut Call) {
    match stream.below(12) {
        0 => scale(stream, &mut call.path.pad),
        1 => scale(stream, &mut call.path.levels),
        2 => call.path.numbered = !call.path.numbered,
        3 => scale(stream, &mut call.data),
        4 => scale(stream, &mut call.count),
        5 => call.path = path(stream),
        6 => call.number = stream.pick(&[-1, 0, 1, 2, 5, 100]),
        7 => call.flag = !call.flag,
        8 if call.acl.is_none() => call.acl = Some(acl(stream)),
        _ => match &mut call.acl {
            Some(acl) => change_acl(stream, acl),
            None => call.path.name = stream.pick(&NAMES).to_owned(),
        },
    }
}

fn change_acl(stream: &mut Stream, acl: &mut Acl) {
    match stream.below(8) {
        0..3 => scale(stream, &mut acl.count),
        3 => scale(stream, &mut acl.run),
        4 => acl.run_at = u32::try_from(stream.below(14)).unwrap_or(0),
        5 => acl.vary = stream.pick(&[Vary::Perms, Vary::Id]),
        6 => acl.open = !acl.open,
        _ => acl.run_of = stream.pick(&['0', '1', 'x', '.', ':', '/']),
    }
}

/// Mostly twice as much.
fn scale(stream: &mut Stream, number: &mut u32) {
    *number = match stream.below(10) {
        0..5 => number.saturating_mul(2).max(1),
        5 => number.saturating_mul(8).max(8),
        6 => *number / 2,
        7 => number.saturating_add(1),
        8 => number.saturating_sub(1),
        _ => stream.pick(&[0, 1, 255, 1000, 1 << 14]),
    }
    .min(1 << 20);
}
