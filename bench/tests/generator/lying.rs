//! A server that lies: it answers as a ZooKeeper would, but for one fault.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use corral_wire::consts::{CreateMode, EventType, KeeperState};
use corral_wire::frame::{FRAME_MAX_DEFAULT, begin_frame, end_frame, next_frame};
use corral_wire::multi::{MultiKind, MultiRequest, MultiResponseEncoder};
use corral_wire::records::{
    ConnectRequest, ConnectResponse, CreateRequest, CreateResponse, DeleteRequest, ExistsResponse,
    GetChildren2Response, GetDataRequest, GetDataResponse, ReplyHeader, RequestHeader, SetDataRequest, Stat,
    WatcherEvent,
};
use corral_wire::{ErrorCode, OpCode, Reader, VectorBuf, Writer};

/// What the fake server does wrong, after so many measured replies on a connection that were right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    WrongXid,
    Swapped,
    WrongData,
    /// The Stat is another znode's.
    OtherZnode,
    FallingZxid,
    WrongError,
    ShortRecord,
    LongRecord,
    NoFrame,
    HangUp,
    /// Every tenth write is refused as throttled, and done as if it had never come.
    Throttles,
    /// As `Throttles`, but deletes succeed that must not.
    ThrottlesAndForgets,
    /// Every session is told that it is the first and only one in line.
    EveryoneHolds,
    /// Watchers hear of each write twice.
    DoubleEvent,
    /// Watchers hear of another znode.
    WrongEvent,
    /// A read after a write does not show it.
    StaleRead,
    /// No reply for 300 ms once a second, on all connections together.
    Stalls,
    /// Sessions are granted at once, those behind the first ten after two seconds.
    GrantsLate,
}

/// Right replies before the first wrong one, in a load.
pub(crate) const HONEST: u64 = 100;

/// Starts the server; it ends with the test's process.
pub(crate) fn server(honest: u64, fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = listener.local_addr().expect("it is bound").to_string();
    let (start, world) = (Instant::now(), Arc::new(Mutex::new(World::default())));
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().flatten().enumerate() {
            let world = Arc::clone(&world);
            let wait = Duration::from_secs(if fault == Fault::GrantsLate && nth > 10 { 2 } else { 0 });
            thread::spawn(move || {
                thread::sleep(wait);
                Session::new(honest, fault, start, world).serve(stream);
            });
        }
    });
    addr
}

/// What the sessions have in common: one znode.
#[derive(Default)]
struct World {
    version: i32,
    watchers: Vec<TcpStream>,
}

impl World {
    /// A write: tells those who watch.
    fn write(&mut self, fault: Fault, path: &str) {
        self.version += 1;
        let path = if fault == Fault::WrongEvent { "/elsewhere" } else { path };
        let mut frame = Vec::new();
        let mark = begin_frame(&mut frame);
        let mut writer = Writer::new(&mut frame);
        ReplyHeader::notification(-1).encode(&mut writer);
        let event_type = EventType::NodeDataChanged.number();
        WatcherEvent { event_type, state: KeeperState::SyncConnected.number(), path: Some(path) }.encode(&mut writer);
        end_frame(&mut frame, mark).expect("small");
        let times = if fault == Fault::DoubleEvent { 2 } else { 1 };
        for mut watcher in self.watchers.drain(..) {
            watcher.write_all(&frame.repeat(times)).expect("the watcher is there");
        }
    }
}

struct Session {
    honest: u64,
    fault: Fault,
    start: Instant,
    stalled: u64,
    zxid: i64,
    measured: u64,
    writes: u64,
    absent: BTreeSet<String>,
    held: Option<Vec<u8>>,
    world: Arc<Mutex<World>>,
    stream: Option<TcpStream>,
}

impl Session {
    fn new(honest: u64, fault: Fault, start: Instant, world: Arc<Mutex<World>>) -> Self {
        let absent = BTreeSet::new();
        let (stalled, zxid, measured, writes, held, stream) = (0, 1, 0, 0, None, None);
        Self { honest, fault, start, stalled, zxid, measured, writes, absent, held, world, stream }
    }

    /// Serves until the client goes or the fault ends it.
    fn serve(&mut self, mut stream: TcpStream) {
        let (mut input, mut connected) = (Vec::new(), false);
        let mut buf = [0; 65_536];
        stream.set_nodelay(true).expect("a socket");
        self.stream = Some(stream.try_clone().expect("a socket"));
        while let Ok(bytes @ 1..) = stream.read(&mut buf) {
            input.extend_from_slice(&buf[..bytes]);
            let mut out = Vec::new();
            while let Some((body, used)) = next_frame(&input, FRAME_MAX_DEFAULT).expect("the generator sends frames") {
                if connected {
                    if !self.answer(body, &mut out) {
                        return;
                    }
                } else {
                    greet(body, &mut out);
                    connected = true;
                }
                input.drain(..used);
            }
            let second = self.start.elapsed().as_secs();
            if self.fault == Fault::Stalls && second > self.stalled {
                self.stalled = second;
                thread::sleep(Duration::from_millis(300));
            }
            if stream.write_all(&out).is_err() {
                return;
            }
        }
    }

    /// Gives false to hang up.
    fn answer(&mut self, body: &[u8], out: &mut Vec<u8>) -> bool {
        let mut reader = Reader::new(body);
        let RequestHeader { xid, op } = RequestHeader::decode(&mut reader).expect("a request header");
        let op = OpCode::from_i32(op).expect("a known operation");
        let load = matches!(op, OpCode::GetData | OpCode::SetData | OpCode::Exists | OpCode::Multi);
        self.measured += u64::from(load);
        let wrong = self.measured > self.honest;
        self.zxid += 1;
        let mut header = ReplyHeader::ok(xid, self.zxid);
        match self.fault {
            Fault::WrongXid if wrong => header.xid += 1,
            Fault::FallingZxid if wrong => header.zxid = self.zxid - 2,
            Fault::WrongError if wrong => header.err = ErrorCode::NoNode.code(),
            Fault::HangUp if wrong => return false,
            Fault::NoFrame if wrong => {
                out.extend_from_slice(&[0xff; 8]);
                return true;
            }
            _ => {}
        }
        let mut frame = Vec::new();
        let mark = begin_frame(&mut frame);
        let mut record = Vec::new();
        let refused = self.record(op, &mut reader, wrong, &mut record);
        if let Some(code) = refused {
            header.err = code.code();
        }
        header.encode(&mut Writer::new(&mut frame));
        if header.err == 0 {
            frame.extend_from_slice(&record);
        }
        match self.fault {
            Fault::ShortRecord if wrong => drop(frame.pop()),
            Fault::LongRecord if wrong => frame.push(0),
            _ => {}
        }
        end_frame(&mut frame, mark).expect("small");
        match (self.fault, self.held.take()) {
            (Fault::Swapped, None) if wrong && load => self.held = Some(frame),
            (_, held) => {
                out.extend_from_slice(&frame);
                out.extend_from_slice(&held.unwrap_or_default());
            }
        }
        true
    }

    /// Appends the record of a reply, or gives the error.
    fn record(&mut self, op: OpCode, reader: &mut Reader<'_>, wrong: bool, out: &mut Vec<u8>) -> Option<ErrorCode> {
        let mut writer = Writer::new(out);
        let mut world = self.world.lock().expect("no session panics");
        let version = if self.fault == Fault::StaleRead { 0 } else { world.version };
        let stat = Stat { data_length: 100, num_children: 3, version, ..Stat::default() };
        let czxid = i64::from(self.fault == Fault::OtherZnode) + i64::from(wrong);
        let stat = if self.fault == Fault::OtherZnode { Stat { czxid, ..stat } } else { stat };
        let mut value = corral_bench::value(100);
        if self.fault == Fault::WrongData && wrong {
            value[50] ^= 1;
        }
        match op {
            OpCode::GetData => {
                if GetDataRequest::decode(reader).expect("a getData").watch {
                    world.watchers.push(self.stream.as_ref().and_then(|it| it.try_clone().ok()).expect("a socket"));
                }
                GetDataResponse { data: Some(&value), stat }.encode(&mut writer);
            }
            OpCode::SetData => {
                let path = SetDataRequest::decode(reader).expect("a setData").path.expect("a path");
                world.write(self.fault, path);
                ExistsResponse { stat }.encode(&mut writer);
            }
            OpCode::Exists => ExistsResponse { stat }.encode(&mut writer),
            OpCode::Multi => {
                let count = MultiRequest::decode(MultiKind::Write, reader).expect("a multi").len();
                let mut results = MultiResponseEncoder::new(&mut writer);
                (0..count).for_each(|_| results.set_data(&stat));
                results.finish();
            }
            OpCode::GetChildren2 if self.fault == Fault::EveryoneHolds => {
                let names = VectorBuf::of([Some("m-0000000001")]);
                let children = Some(names.view().expect("just made"));
                GetChildren2Response { children, stat }.encode(&mut writer);
            }
            OpCode::GetChildren2 => {
                let names = VectorBuf::of(["a", "b", "c"].map(Some));
                let children = Some(names.view().expect("just made"));
                GetChildren2Response { children, stat }.encode(&mut writer);
            }
            OpCode::Create => {
                let request = CreateRequest::decode(reader).expect("a create");
                let path = request.path.expect("a path");
                drop(world);
                if request.flags == CreateMode::EphemeralSequential.flag() {
                    CreateResponse { path: Some(&format!("{path}0000000001")) }.encode(&mut writer);
                    return None;
                }
                if self.throttled(path) {
                    self.absent.insert(path.to_owned());
                    return Some(ErrorCode::ThrottledOp);
                }
                CreateResponse { path: Some(path) }.encode(&mut writer);
            }
            OpCode::Delete => {
                let path = DeleteRequest::decode(reader).expect("a delete").path.expect("a path");
                if self.absent.remove(path) && self.fault != Fault::ThrottlesAndForgets {
                    return Some(ErrorCode::NoNode);
                }
            }
            OpCode::Ping | OpCode::CloseSession => {}
            other => panic!("the generator sends {other:?}"),
        }
        None
    }

    /// Only the load's own znodes, not those that are prepared.
    fn throttled(&mut self, path: &str) -> bool {
        let throttles = matches!(self.fault, Fault::Throttles | Fault::ThrottlesAndForgets);
        self.writes += u64::from(throttles && path.split('/').count() == 5);
        throttles && self.writes % 10 == 9
    }
}

fn greet(body: &[u8], out: &mut Vec<u8>) {
    let request = ConnectRequest::decode(&mut Reader::new(body)).expect("a connect request");
    let mark = begin_frame(out);
    let response = ConnectResponse {
        protocol_version: 0,
        timeout_ms: request.timeout_ms,
        session_id: 1,
        passwd: Some(&[0; 16]),
        read_only: Some(false),
    };
    response.encode(&mut Writer::new(out));
    end_frame(out, mark).expect("small");
}
