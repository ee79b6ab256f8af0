//! A shard of a large tree looks ahead in requests that a client sends at once. The replies are the same as for one
//! request at a time.

use crate::one_shard::{Server, get, request};
use corral_core::ids::Zxid;
use corral_core::limits::ShardLimits;
use corral_core::shared::{Data, Text};
use corral_core::tree::acl::Acl;
use corral_core::tree::change::Change;
use corral_core::tree::snapshot::merge_in_memory;
use corral_core::tree::view::View;
use corral_core::tree::znode::{NodeStat, Znode};
use corral_wire::OpCode;
use std::sync::Arc;

/// A tree beyond the caches of which a snapshot, a frozen delta and a live one each hold a part.
fn large_view() -> View {
    let mut view = View::empty(7);
    let grow = |view: &mut View, range: std::ops::Range<u32>| {
        for number in range {
            let data = Some(Data::from(&number.to_be_bytes()[..]));
            let node = Arc::new(Znode { stat: NodeStat::default(), acl: Acl::Open, data });
            let at = view.hashed(Text::from(format!("/{number}")));
            view.apply(Zxid(1), &Change::Created { at, node });
        }
        view.set_zxid(Zxid(view.zxid().0 + 1));
    };
    grow(&mut view, 0..12_000);
    let frozen = view.freeze();
    let snapshot = merge_in_memory(view.snapshot(), &frozen, 2, Vec::new(), Vec::new()).expect("a sound tree");
    view.swap_snapshot(Arc::new(snapshot));
    grow(&mut view, 12_000..20_000);
    view.freeze();
    grow(&mut view, 20_000..24_000);
    for number in [5, 13_000, 21_000] {
        let at = view.hashed(Text::from(format!("/{number}")));
        view.apply(Zxid(1), &Change::Deleted { at });
    }
    view
}

fn requests() -> Vec<Vec<u8>> {
    let path = |xid: i32| format!("/{}", (i64::from(xid) * 7919) % 25_000);
    let one = |xid: i32| match xid % 16 {
        3 => request(xid, OpCode::Ping, |_| {}),
        5 => get(xid, ["/5", "/13000", "/21000", "/"][(xid / 16 % 4) as usize]),
        7 => request(xid, OpCode::GetChildren2, |writer| {
            writer.str(&path(xid));
            writer.bool(true);
        }),
        9 => request(xid, OpCode::Exists, |writer| {
            writer.str(&path(xid));
            writer.bool(true);
        }),
        11 => request(xid, OpCode::SetData, |writer| {
            writer.str(&path(xid));
            writer.buffer(Some(b"new"));
            writer.i32(-1);
        }),
        13 => request(xid, OpCode::GetData, |writer| writer.raw(&[0, 0, 0, 3, 0xff, 0xfe, b'/', 0])),
        _ => get(xid, &path(xid)),
    };
    (1..=600).map(one).collect()
}

#[test]
fn many_at_once_are_answered_as_one_at_a_time() {
    let view = large_view();
    let mut answers = [1, 2, 17, 600].map(|together| {
        let mut server = Server::with_view(ShardLimits::default(), view.clone());
        let client = server.client();
        let mut frames = Vec::new();
        for some in requests().chunks(together) {
            let bytes = some.concat();
            // Cut anywhere: what is looked at may end in half a request.
            let (now, later) = bytes.split_at(bytes.len() * 2 / 3);
            server.send(client, now);
            server.send(client, later);
            server.commit();
            frames.extend(server.take_frames(client));
        }
        assert_eq!(server.closed(), []);
        frames
    });
    let (first, others) = answers.split_first_mut().expect("four of them");
    assert!(first.len() >= 600);
    for other in others {
        // Only the zxid of the reply's header shows whether a read was before a write or after it.
        assert_eq!(first.len(), other.len());
        for (first, other) in first.iter_mut().zip(other) {
            assert_eq!(without_zxid(first), without_zxid(other));
        }
    }
}

/// A reply, or an event, without the zxids and times that depend on how the writes were put together.
fn without_zxid(frame: &mut Vec<u8>) -> &[u8] {
    frame[4..12].fill(0);
    frame
}
