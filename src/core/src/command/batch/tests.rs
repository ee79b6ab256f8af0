//! Batches survive the log, and nothing but a batch is taken for one.

use super::*;
use crate::ids::{ServerId, SessionId};
use crate::ops;
use crate::ops::CreateOp;
use crate::ops::STAT_FIELDS;
use crate::shared::Text;
use crate::tree::acl::AclEntry;
use alloc::vec;

fn unweighed(rest: &[u8]) -> Take<'_> {
    Take { left: Reader::new(rest), weight_left: 0, admitted: false }
}

fn origin(incarnation: u64) -> Option<Origin> {
    let conn = ConnId { slot: 300, generation: 4 };
    Some(Origin { server: ServerId(1), shard: ShardId(2), conn, incarnation })
}

fn command(origin: Option<Origin>, kind: CommandKind) -> Command {
    Command { origin, session: SessionId(-9), identities: 200, kind }
}

fn entries() -> Vec<AclEntry> {
    vec![AclEntry { perms: -1, scheme: Text::from("ip"), id: Text::from("::1") }]
}

fn ops() -> Vec<WriteOp> {
    let path = || Text::from("/a");
    let create = |op, acl, data: Option<&[u8]>| {
        WriteOp::Create(ops::Create {
            op,
            path: path(),
            data: data.map(Data::from),
            acl,
            flags: i32::MIN,
            ttl_ms: i64::MAX,
        })
    };
    vec![
        create(CreateOp::Create, AclSpec::Open, None),
        create(CreateOp::Create2, AclSpec::Missing, Some(b"")),
        create(CreateOp::Container, AclSpec::List(entries()), Some(b"x")),
        create(CreateOp::Ttl, AclSpec::Malformed, Some(&[7; 200])),
        create(CreateOp::IfNotExists, AclSpec::BrokenOff(entries()), Some(b"x")),
        WriteOp::Delete(ops::Delete { path: path(), version: -1 }),
        WriteOp::SetData(ops::SetData { path: path(), data: None, version: i32::MAX }),
        WriteOp::SetAcl(ops::SetAcl { path: path(), acl: AclSpec::Open, version: 0 }),
        WriteOp::Check(ops::Check { path: path(), version: 1 }),
        WriteOp::CheckNotExists(ops::CheckNotExists { path: path(), version: 64 }),
        WriteOp::CheckStat(ops::CheckStat { path: path(), version: -65, stat: Box::new([i64::MIN; STAT_FIELDS]) }),
        WriteOp::TryRemove(ops::TryRemove { path: path(), version: 2 }),
        WriteOp::RemoveRecursive(ops::RemoveRecursive { path: path(), limit: u32::MAX }),
    ]
}

fn batch() -> Batch {
    let (timeout_ms, password) = (30_000, [5; 16]);
    let kinds = vec![
        CommandKind::Multi(ops()),
        CommandKind::CreateSession { timeout_ms, password },
        CommandKind::AttachSession { session: SessionId(i64::MIN), timeout_ms, password },
        CommandKind::CloseSession,
        CommandKind::Reconfig(Box::default()),
        CommandKind::Reconfig(Box::new(Reconfig {
            joining: Some(Text::from("server.4=h:1:2;3")),
            ..Reconfig::default()
        })),
        CommandKind::Reconfig(Box::new(Reconfig {
            joining: None,
            leaving: Some(Text::from("")),
            members: Some(Text::from("x")),
            from: i64::MIN,
        })),
        CommandKind::Configured(Text::from("server.1=h:1:2:participant\n")),
        CommandKind::ReconfigBegins(Text::from("server.1=h:1:2:participant\n")),
        CommandKind::ReconfigEnds,
        CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum),
        CommandKind::SystemNodes(vec![(Text::from("/keeper"), Data::from(&b"3"[..]))]),
        CommandKind::Reap { path: Text::from("/c"), mzxid: u64::MAX },
        CommandKind::Undecodable,
        CommandKind::QuotaCounted(Box::new(Counted {
            path: Text::from("/zookeeper/quota/a/zookeeper_stats"),
            mzxid: 7,
            znodes: -1,
            bytes: i64::MAX,
        })),
    ];
    let mut commands: Vec<Command> = ops().into_iter().map(|op| command(origin(5), CommandKind::Op(op))).collect();
    commands.push(command(origin(6), CommandKind::CloseSession));
    commands.extend(kinds.into_iter().map(|kind| command(None, kind)));
    commands.push(command(origin(6), CommandKind::CloseSession));
    let identity = Identity { scheme: Text::from("ip"), id: Text::from("::1") };
    Batch {
        time: WallMillis(77),
        first_zxid: 0x1_0000_0001,
        features: 300,
        identities: vec![Arc::new(vec![identity.clone(), identity]), Arc::default()],
        commands,
    }
}

#[test]
fn batches_survive_the_log() {
    let batch = batch();
    let bytes = batch.encode();
    assert_eq!(Batch::decode(&bytes).as_ref(), Ok(&batch));
    assert_eq!(Batch::zxid_of(&bytes), 0x1_0000_0001);
    let empty = Batch { commands: Vec::new(), identities: Vec::new(), ..batch };
    assert_eq!(Batch::decode(&empty.encode()), Ok(empty));
}

#[test]
fn a_batch_with_features_of_a_later_version_is_refused() {
    for features in [features::KNOWN, features::ADMITTED, features::BOUNDS] {
        let known = Batch { features, ..batch() };
        assert_eq!(Batch::decode(&known.encode()), Ok(known));
    }
    for later in [features::KNOWN + 1, 1 << 31] {
        let unknown = Batch { features: features::BOUNDS | later, ..batch() }.encode();
        assert_eq!(Batch::decode(&unknown), Err(BatchError::Format));
        assert_eq!(Batch::decode_of_peer(&unknown), Err(BatchError::Format));
        // Also if it holds what only that version can read.
        let cut = &unknown[..unknown.len() - 1];
        assert_eq!(Batch::decode(cut), Err(BatchError::Format));
    }
}

#[test]
fn a_command_is_refused_only_among_judged_ones() {
    let commands = vec![command(origin(5), CommandKind::Refused(ErrorCode::ThrottledOp))];
    let judged = Batch { features: features::BOUNDS | features::ADMITTED, commands, ..batch() };
    assert_eq!(Batch::decode(&judged.encode()).as_ref(), Ok(&judged));
    let not_judged = Batch { features: features::BOUNDS, ..judged };
    assert_eq!(Batch::decode(&not_judged.encode()), Err(BatchError::Bytes));
}

#[test]
fn a_write_takes_little_more_than_what_it_says() {
    let set = WriteOp::SetData(ops::SetData {
        path: Text::from("/bench/key"),
        data: Some(Data::from(&[1; 100][..])),
        version: -1,
    });
    let commands = vec![command(origin(5), CommandKind::Op(set)); 101];
    let many = Batch { commands, ..batch() };
    let one = Batch { commands: many.commands[..1].to_vec(), ..batch() };
    assert_eq!(many.encode().len() - one.encode().len(), 100 * (110 + 20));
    assert!(many.encode().capacity() < many.encode().len() * 3 / 2);
}

#[test]
fn nothing_else_is_taken_for_a_batch() {
    let bytes = batch().encode();
    for end in 0..bytes.len() {
        assert!(Batch::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert_eq!(Batch::decode(&[&bytes[..], &[0]].concat()), Err(BatchError::Bytes));
    for at in 0..bytes.len() {
        for change in [0x01, 0x02, 0x80, 0xff] {
            let mut bad = bytes.clone();
            bad[at] ^= change;
            if let Ok(batch) = Batch::decode(&bad) {
                assert_eq!(batch.encode(), bad, "byte {at} is not as it would be written");
            }
        }
    }
    let mut other = bytes;
    other[8] = 4;
    assert_eq!(Batch::decode(&other), Err(BatchError::Format));
}

#[test]
fn a_count_asks_for_no_more_memory_than_the_bytes_can_fill() {
    let mut bytes = Batch { commands: Vec::new(), identities: Vec::new(), ..batch() }.encode();
    bytes.truncate(bytes.len() - 2);
    for count in [1, 1 << 20, u64::MAX >> 8, u64::MAX] {
        let mut bad = bytes.clone();
        put_varint(&mut bad, count);
        assert_eq!(Batch::decode(&bad), Err(BatchError::Bytes));
    }
}

#[test]
fn numbers_have_one_form() {
    for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, value);
        assert_eq!(unweighed(&bytes).varint(), Some(value));
        *bytes.last_mut().expect("a number has a byte") |= 0x80;
        bytes.push(0);
        assert_eq!(unweighed(&bytes).varint(), None, "a longer form of {value}");
    }
    assert_eq!(unweighed(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).varint(), None);
    for value in [0, -1, 1, -64, 64, i64::MIN, i64::MAX] {
        let mut bytes = Vec::new();
        put_signed(&mut bytes, value);
        assert_eq!(unweighed(&bytes).signed(), Some(value));
        assert_eq!(bytes.len() == 1, (-64..64).contains(&value));
    }
}

#[test]
fn few_bytes_of_a_peer_do_not_take_much_memory() {
    let nothing = Batch { time: WallMillis(1), first_zxid: 1, features: 0, identities: vec![], commands: vec![] };
    let of_ops = |count| Batch {
        commands: vec![command(
            None,
            CommandKind::Multi(vec![WriteOp::Check(ops::Check { path: Text::from(""), version: 0 }); count]),
        )],
        ..nothing.clone()
    };
    let of_lists = |count| Batch { identities: vec![Arc::default(); count], ..nothing.clone() };
    let identities = |count| vec![Identity { scheme: Text::from(""), id: Text::from("") }; count];
    let of_identities = |count| Batch { identities: vec![Arc::new(identities(count))], ..nothing.clone() };
    let acl = |count| AclSpec::List(vec![AclEntry { perms: 0, scheme: Text::from(""), id: Text::from("") }; count]);
    let of_acl = |count| {
        let op = WriteOp::SetAcl(ops::SetAcl { path: Text::from(""), acl: acl(count), version: 0 });
        Batch { commands: vec![command(None, CommandKind::Op(op))], ..nothing.clone() }
    };
    let check = |make: &dyn Fn(usize) -> Batch, weight: usize| {
        let most = PEER_WEIGHT_MAX / weight;
        for (count, taken) in [(most - 10, true), (most + 1, false)] {
            let bytes = make(count).encode();
            assert_eq!(Batch::decode_of_peer(&bytes).is_ok(), taken, "{count} in {} bytes", bytes.len());
            assert!(taken || Batch::decode(&bytes).is_ok(), "the log may hold it");
        }
    };
    check(&of_ops, OP_WEIGHT);
    check(&of_lists, LIST_WEIGHT);
    check(&of_identities, LIST_WEIGHT);
    check(&of_acl, ACL_ENTRY_WEIGHT);
}
