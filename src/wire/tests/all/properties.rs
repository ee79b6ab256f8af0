//! Properties over made-up records and hostile bytes. A record decodes to itself, no cut record is accepted, and no
//! bytes make a decoder panic or allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use corral_wire::frame::next_frame;
use corral_wire::multi::{MultiKind, MultiOp, MultiRequest, MultiResponse, MultiResult, encode_request};
use corral_wire::records::*;
use corral_wire::{DecodeError, OpCode, Reader, Vector, VectorBuf, Wire, Writer};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Counts this thread's allocations.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[allow(unsafe_code, reason = "a counting allocator can only be written against the unsafe trait")]
// SAFETY: every call goes to the system allocator unchanged; the counter is a thread-local without destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work` and gives the number of its allocations.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

/// Encodes, decodes, compares; then refuses every cut.
macro_rules! round_trip {
    ($record:ident, $value:expr) => {{
        let value = $value;
        let mut out = Vec::new();
        value.encode(&mut Writer::new(&mut out));
        let mut reader = Reader::new(&out);
        prop_assert_eq!($record::decode(&mut reader), Ok(value));
        prop_assert_eq!(reader.remaining(), 0);
        prop_assert!(out.len() >= size_min(&value));
        for length in 0..out.len() {
            prop_assert!($record::decode(&mut Reader::new(&out[..length])).is_err(), "cut to {}", length);
        }
    }};
}

/// The bound its type gives on the size of a value.
fn size_min<'a, T: Wire<'a>>(_: &T) -> usize {
    T::SIZE_MIN
}

/// Raw material for the fields of any record.
#[derive(Clone, Debug)]
struct Fields {
    s: [Option<String>; 3],
    b: Option<Vec<u8>>,
    ints: [i32; 6],
    longs: [i64; 6],
    yes: [bool; 3],
    names: [Option<VectorBuf>; 5],
    acl: Option<VectorBuf>,
    infos: Option<VectorBuf>,
}

impl Fields {
    fn s(&self, at: usize) -> Option<&str> {
        self.s[at].as_deref()
    }

    fn names(&self, at: usize) -> Option<Strings<'_>> {
        self.names[at].as_ref().map(|names| names.view().expect("strings"))
    }

    fn acl(&self) -> Option<Vector<'_, Acl<'_>>> {
        self.acl.as_ref().map(|acl| acl.view().expect("ACL entries"))
    }

    fn stat(&self) -> Stat {
        Stat {
            czxid: self.longs[0],
            mzxid: self.longs[1],
            ctime: self.longs[2],
            mtime: self.longs[3],
            version: self.ints[1],
            cversion: self.ints[2],
            aversion: self.ints[3],
            ephemeral_owner: self.longs[4],
            data_length: self.ints[4],
            num_children: self.ints[5],
            pzxid: self.longs[5],
        }
    }

    fn create(&self, flags: i32) -> CreateRequest<'_> {
        CreateRequest { path: self.s(0), data: self.b.as_deref(), acl: self.acl(), flags }
    }
}

fn text() -> impl Strategy<Value = Option<String>> {
    option::of(prop_oneof!["/[a-z]{0,8}", "\\PC{0,6}"])
}

fn names() -> impl Strategy<Value = Option<VectorBuf>> {
    option::of(
        vec(text(), 0..4).prop_map(|names| VectorBuf::of::<Option<&str>>(names.iter().map(|name| name.as_deref()))),
    )
}

fn entries() -> impl Strategy<Value = Vec<(i32, Option<String>, Option<String>)>> {
    vec((any::<i32>(), text(), text()), 0..3)
}

fn fields() -> impl Strategy<Value = Fields> {
    let acl = option::of(entries().prop_map(|entries| {
        VectorBuf::of(entries.iter().map(|(perms, scheme, id)| Acl {
            perms: *perms,
            scheme: scheme.as_deref(),
            id: id.as_deref(),
        }))
    }));
    let infos = option::of(entries().prop_map(|entries| {
        VectorBuf::of(
            entries
                .iter()
                .map(|(_, scheme, user)| ClientInfo { auth_scheme: scheme.as_deref(), user: user.as_deref() }),
        )
    }));
    let lists = (acl, infos, [names(), names(), names(), names(), names()]);
    let scalars = (any::<[i32; 6]>(), any::<[i64; 6]>(), any::<[bool; 3]>());
    ([text(), text(), text()], option::of(vec(any::<u8>(), 0..9)), scalars, lists).prop_map(
        |(s, b, (ints, longs, yes), (acl, infos, names))| Fields { s, b, ints, longs, yes, names, acl, infos },
    )
}

proptest! {
    #[test]
    fn shared_records_round_trip(f in fields()) {
        round_trip!(RequestHeader, RequestHeader { xid: f.ints[0], op: f.ints[1] });
        round_trip!(ReplyHeader, ReplyHeader { xid: f.ints[0], zxid: f.longs[0], err: f.ints[1] });
        round_trip!(MultiHeader, MultiHeader { op: f.ints[0], done: f.yes[0], err: f.ints[1] });
        round_trip!(WatcherEvent, WatcherEvent { event_type: f.ints[0], state: f.ints[1], path: f.s(0) });
        round_trip!(Stat, f.stat());
        round_trip!(Acl, Acl { perms: f.ints[0], scheme: f.s(0), id: f.s(1) });
        round_trip!(ClientInfo, ClientInfo { auth_scheme: f.s(0), user: f.s(1) });
    }

    #[test]
    fn write_requests_round_trip(f in fields()) {
        round_trip!(CreateRequest, f.create(f.ints[0]));
        round_trip!(CreateTtlRequest, CreateTtlRequest {
            path: f.s(0), data: f.b.as_deref(), acl: f.acl(), flags: f.ints[0], ttl: f.longs[0],
        });
        round_trip!(DeleteRequest, DeleteRequest { path: f.s(0), version: f.ints[0] });
        round_trip!(DeleteContainerRequest, DeleteContainerRequest { path: f.s(0) });
        round_trip!(SetDataRequest, SetDataRequest { path: f.s(0), data: f.b.as_deref(), version: f.ints[0] });
        round_trip!(SetAclRequest, SetAclRequest { path: f.s(0), acl: f.acl(), version: f.ints[0] });
        round_trip!(CheckVersionRequest, CheckVersionRequest { path: f.s(0), version: f.ints[0] });
        round_trip!(ReconfigRequest, ReconfigRequest {
            joining_servers: f.s(0), leaving_servers: f.s(1), new_members: f.s(2), cur_config_id: f.longs[0],
        });
    }

    #[test]
    fn read_requests_round_trip(f in fields()) {
        round_trip!(ExistsRequest, ExistsRequest { path: f.s(0), watch: f.yes[0] });
        round_trip!(GetDataRequest, GetDataRequest { path: f.s(0), watch: f.yes[0] });
        round_trip!(GetAclRequest, GetAclRequest { path: f.s(0) });
        round_trip!(GetChildrenRequest, GetChildrenRequest { path: f.s(0), watch: f.yes[0] });
        round_trip!(GetChildren2Request, GetChildren2Request { path: f.s(0), watch: f.yes[0] });
        round_trip!(SyncRequest, SyncRequest { path: f.s(0) });
        round_trip!(GetEphemeralsRequest, GetEphemeralsRequest { prefix_path: f.s(0) });
        round_trip!(GetAllChildrenNumberRequest, GetAllChildrenNumberRequest { path: f.s(0) });
    }

    #[test]
    fn watch_and_auth_requests_round_trip(f in fields()) {
        round_trip!(CheckWatchesRequest, CheckWatchesRequest { path: f.s(0), watcher_type: f.ints[0] });
        round_trip!(RemoveWatchesRequest, RemoveWatchesRequest { path: f.s(0), watcher_type: f.ints[0] });
        round_trip!(AddWatchRequest, AddWatchRequest { path: f.s(0), mode: f.ints[0] });
        round_trip!(AuthPacket, AuthPacket { auth_type: f.ints[0], scheme: f.s(0), auth: f.b.as_deref() });
        round_trip!(GetSaslRequest, GetSaslRequest { token: f.b.as_deref() });
        round_trip!(SetWatches, SetWatches {
            relative_zxid: f.longs[0],
            data_watches: f.names(0), exist_watches: f.names(1), child_watches: f.names(2),
        });
        round_trip!(SetWatches2, SetWatches2 {
            relative_zxid: f.longs[0],
            data_watches: f.names(0), exist_watches: f.names(1), child_watches: f.names(2),
            persistent_watches: f.names(3), persistent_recursive_watches: f.names(4),
        });
    }

    #[test]
    fn responses_round_trip(f in fields()) {
        let stat = f.stat();
        round_trip!(CreateResponse, CreateResponse { path: f.s(0) });
        round_trip!(Create2Response, Create2Response { path: f.s(0), stat });
        round_trip!(ExistsResponse, ExistsResponse { stat });
        round_trip!(SetDataResponse, SetDataResponse { stat });
        round_trip!(SetAclResponse, SetAclResponse { stat });
        round_trip!(GetDataResponse, GetDataResponse { data: f.b.as_deref(), stat });
        round_trip!(GetChildrenResponse, GetChildrenResponse { children: f.names(0) });
        round_trip!(GetChildren2Response, GetChildren2Response { children: f.names(0), stat });
        round_trip!(GetAclResponse, GetAclResponse { acl: f.acl(), stat });
        round_trip!(SyncResponse, SyncResponse { path: f.s(0) });
        round_trip!(SetSaslResponse, SetSaslResponse { token: f.b.as_deref() });
        round_trip!(GetEphemeralsResponse, GetEphemeralsResponse { ephemerals: f.names(0) });
        round_trip!(GetAllChildrenNumberResponse, GetAllChildrenNumberResponse { total_number: f.ints[0] });
        round_trip!(ErrorResponse, ErrorResponse { err: f.ints[0] });
        let client_info = f.infos.as_ref().map(|infos| infos.view().expect("identities"));
        round_trip!(WhoAmIResponse, WhoAmIResponse { client_info });
    }

    #[test]
    fn extension_records_round_trip(f in fields(), list_type: u8, limit: u32) {
        let (path, watch, stat) = (f.s(0), f.yes[0], f.stat());
        round_trip!(FilteredListRequest, FilteredListRequest { path, watch, list_type });
        round_trip!(CheckNotExistsRequest, CheckNotExistsRequest { path, version: f.ints[0] });
        round_trip!(RemoveRecursiveRequest, RemoveRecursiveRequest { path, remove_nodes_limit: limit });
        round_trip!(CheckStatRequest, CheckStatRequest { path, version: f.ints[0], stat });
        round_trip!(TryRemoveRequest, TryRemoveRequest { path, version: f.ints[0] });
        round_trip!(FilteredListWithStatsAndDataRequest, FilteredListWithStatsAndDataRequest {
            path, watch, list_type, with_stat: f.yes[1], with_data: f.yes[2],
        });
        let (stats, datas) = (VectorBuf::of([stat, Stat::default()]), VectorBuf::of([f.b.as_deref(), None]));
        round_trip!(FilteredListWithStatsAndDataResponse, FilteredListWithStatsAndDataResponse {
            children: f.names(0),
            stat,
            stats: Some(stats.view().expect("stats")),
            data: Some(datas.view().expect("buffers")),
        });
        round_trip!(ListRecursiveRequest, ListRecursiveRequest { path, children_nodes_limit: limit });
        round_trip!(ListRecursiveResponse, ListRecursiveResponse { names: f.names(0) });
    }

    /// The records with a last byte that may be missing: without it they are another record, every other cut is
    /// refused.
    #[test]
    fn connect_records_round_trip(f in fields(), read_only: Option<bool>) {
        let request = ConnectRequest {
            protocol_version: f.ints[0], last_zxid_seen: f.longs[0], timeout_ms: f.ints[1], session_id: f.longs[1],
            passwd: f.b.as_deref(), read_only,
        };
        let response = ConnectResponse {
            protocol_version: f.ints[0], timeout_ms: f.ints[1], session_id: f.longs[1],
            passwd: f.b.as_deref(), read_only,
        };
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        request.encode(&mut Writer::new(&mut asked));
        response.encode(&mut Writer::new(&mut answered));
        prop_assert_eq!(ConnectRequest::decode(&mut Reader::new(&asked)), Ok(request));
        prop_assert_eq!(ConnectResponse::decode(&mut Reader::new(&answered)), Ok(response));
        let optional = usize::from(read_only.is_some());
        for length in 0..asked.len() - optional {
            prop_assert!(ConnectRequest::decode(&mut Reader::new(&asked[..length])).is_err());
        }
        for length in 0..answered.len() - optional {
            prop_assert!(ConnectResponse::decode(&mut Reader::new(&answered[..length])).is_err());
        }
        let old = ConnectRequest { read_only: None, ..request };
        prop_assert_eq!(ConnectRequest::decode(&mut Reader::new(&asked[..asked.len() - optional])), Ok(old));
    }

    #[test]
    fn multis_round_trip(f in fields(), order in vec(0_usize..9, 0..6), flags in 0_i32..5) {
        // A null ACL refuses the whole list, see the next but one.
        prop_assume!(f.acl.is_some());
        let (path, watch, version) = (f.s(0), f.yes[0], f.ints[0]);
        let create = |op| MultiOp::Create {
            op, request: f.create(flags), ttl: (op == OpCode::CreateTtl).then_some(f.longs[0]),
        };
        let writes = [
            create(OpCode::Create), create(OpCode::Create2), create(OpCode::CreateContainer), create(OpCode::CreateTtl),
            MultiOp::Delete(DeleteRequest { path, version }),
            MultiOp::SetData(SetDataRequest { path, data: f.b.as_deref(), version }),
            MultiOp::Check(CheckVersionRequest { path, version }),
        ];
        let reads = [
            MultiOp::GetData(GetDataRequest { path, watch }),
            MultiOp::GetChildren(GetChildrenRequest { path, watch }),
        ];
        for (kind, other, all) in
            [(MultiKind::Write, MultiKind::Read, &writes[..]), (MultiKind::Read, MultiKind::Write, &reads[..])]
        {
            let chosen: Vec<_> = order.iter().map(|at| all[at % all.len()]).collect();
            let mut out = Vec::new();
            encode_request(&mut Writer::new(&mut out), chosen.iter().copied());
            let mut reader = Reader::new(&out);
            let multi = MultiRequest::decode(kind, &mut reader).expect("valid");
            prop_assert_eq!(reader.remaining(), 0);
            prop_assert_eq!(multi.len(), chosen.len());
            prop_assert!(multi.iter().eq(chosen.iter().copied()));
            for length in 0..out.len() {
                prop_assert!(MultiRequest::decode(kind, &mut Reader::new(&out[..length])).is_err());
            }
            if let Some(first) = chosen.first() {
                let refused = MultiRequest::decode(other, &mut Reader::new(&out));
                prop_assert_eq!(refused, Err(DecodeError::BadOp(first.op().number())));
            }
        }
    }

    #[test]
    fn multi_results_round_trip(f in fields(), order in vec(0_usize..8, 0..6)) {
        let stat = f.stat();
        let all = [
            MultiResult::Create(CreateResponse { path: f.s(0) }),
            MultiResult::Create2(Create2Response { path: f.s(0), stat }),
            MultiResult::Delete,
            MultiResult::SetData(SetDataResponse { stat }),
            MultiResult::Check,
            MultiResult::GetData(GetDataResponse { data: f.b.as_deref(), stat }),
            MultiResult::GetChildren(GetChildrenResponse { children: f.names(0) }),
            MultiResult::Error(f.ints[0]),
        ];
        let chosen: Vec<_> = order.iter().map(|at| all[*at]).collect();
        let mut out = Vec::new();
        for result in &chosen {
            result.encode(&mut Writer::new(&mut out));
        }
        MultiHeader::END.encode(&mut Writer::new(&mut out));
        let response = MultiResponse::decode(&mut Reader::new(&out)).expect("valid");
        prop_assert!(response.iter().eq(chosen.iter().copied()));
        for length in 0..out.len() {
            prop_assert!(MultiResponse::decode(&mut Reader::new(&out[..length])).is_err());
        }
        let mut again = Vec::new();
        response.encode(&mut Writer::new(&mut again));
        prop_assert_eq!(out, again);
    }

    #[test]
    fn a_bad_flag_refuses_the_multi(f in fields(), flags: i32) {
        prop_assume!(!(0..5).contains(&flags));
        let mut out = Vec::new();
        let operation = MultiOp::Create { op: OpCode::Create, request: f.create(flags), ttl: None };
        encode_request(&mut Writer::new(&mut out), [operation]);
        let decoded = MultiRequest::decode(MultiKind::Write, &mut Reader::new(&out));
        let trips = f.acl.is_none() && (5..7).contains(&flags);
        let refused = if trips { DecodeError::NullAcl } else { DecodeError::BadFlag(flags) };
        prop_assert_eq!(decoded, Err(refused));
    }

    #[test]
    fn hostile_bytes_neither_panic_nor_allocate(bytes in hostile()) {
        prop_assert_eq!(allocations(|| decode_as_everything(&bytes)), 0);
    }

    /// A decoded first frame lies within the bytes and the limit.
    #[test]
    fn frames_lie_within_their_bytes(bytes in hostile(), max in 0_usize..64) {
        if let Ok(Some((body, taken))) = next_frame(&bytes, max) {
            prop_assert!(body.len() <= max);
            prop_assert_eq!(&bytes[4..taken], body);
        }
    }
}

/// Bytes that look a little like records: small and negative length words, path letters, and noise.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => (-2_i32..24).prop_map(|word| word.to_be_bytes().to_vec()),
        1 => any::<i32>().prop_map(|word| word.to_be_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..6),
        1 => Just(b"/a".to_vec()),
        1 => Just(vec![0]),
    ];
    vec(word, 0..40).prop_map(|words| words.concat())
}

/// Decodes the bytes as every record there is, and iterates over every list that comes out.
fn decode_as_everything(bytes: &[u8]) {
    macro_rules! all {
        ($($record:ident)*) => { $(let _ = $record::decode(&mut Reader::new(bytes));)* };
    }
    all! {
        RequestHeader ReplyHeader MultiHeader WatcherEvent Stat Acl ClientInfo ConnectRequest ConnectResponse
        CreateTtlRequest DeleteRequest DeleteContainerRequest ExistsRequest GetDataRequest SetDataRequest
        GetAclRequest GetChildrenRequest SyncRequest GetChildren2Request CheckVersionRequest ReconfigRequest
        CheckWatchesRequest RemoveWatchesRequest AuthPacket GetSaslRequest GetEphemeralsRequest
        GetAllChildrenNumberRequest AddWatchRequest CreateResponse Create2Response ExistsResponse SetDataResponse
        SetAclResponse GetDataResponse GetChildren2Response GetAclResponse SyncResponse SetSaslResponse
        GetEphemeralsResponse GetAllChildrenNumberResponse ErrorResponse SetWatches FilteredListRequest
        CheckNotExistsRequest RemoveRecursiveRequest CheckStatRequest TryRemoveRequest
        FilteredListWithStatsAndDataRequest FilteredListWithStatsAndDataResponse ListRecursiveRequest
        ListRecursiveResponse
    }
    let _ = Reader::new(bytes).i8();
    if let Ok(CreateRequest { acl: Some(acl), .. }) = CreateRequest::decode(&mut Reader::new(bytes)) {
        assert_eq!(acl.iter().count(), acl.len());
    }
    if let Ok(SetAclRequest { acl: Some(acl), .. }) = SetAclRequest::decode(&mut Reader::new(bytes)) {
        assert_eq!(acl.iter().count(), acl.len());
    }
    if let Ok(GetChildrenResponse { children: Some(names) }) = GetChildrenResponse::decode(&mut Reader::new(bytes)) {
        assert_eq!(names.iter().count(), names.len());
    }
    if let Ok(WhoAmIResponse { client_info: Some(infos) }) = WhoAmIResponse::decode(&mut Reader::new(bytes)) {
        assert_eq!(infos.iter().count(), infos.len());
    }
    if let Ok(watches) = SetWatches2::decode(&mut Reader::new(bytes)) {
        assert!(watches.data_watches.is_none_or(|paths| paths.iter().count() == paths.len()));
    }
    for kind in [MultiKind::Write, MultiKind::Read] {
        if let Ok(multi) = MultiRequest::decode(kind, &mut Reader::new(bytes)) {
            assert_eq!(multi.iter().count(), multi.len());
        }
    }
    if let Ok(results) = MultiResponse::decode(&mut Reader::new(bytes)) {
        assert_eq!(results.iter().count(), results.len());
    }
}

/// The allocation counter itself works, or the property above would hold for nothing.
#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![0_u8; 100]))), 1);
}
