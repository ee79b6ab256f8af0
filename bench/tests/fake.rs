//! The generator against a server that lies: every kind of wrong reply must end the run with exit code 1 and a sentence
//! that names it, tolerated errors must be counted, and a stall must show in the latency of an open loop.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
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
enum Fault {
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
}

const HONEST: u64 = 100;

fn server(fault: Fault) -> String {
    server_after(HONEST, fault)
}

/// Starts the server; it ends with the test's process.
fn server_after(honest: u64, fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = listener.local_addr().expect("it is bound").to_string();
    let (start, world) = (Instant::now(), Arc::new(Mutex::new(World::default())));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let world = Arc::clone(&world);
            thread::spawn(move || Session::new(honest, fault, start, world).serve(stream));
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

fn bench(addr: &str, flags: &[&str]) -> Output {
    let common = ["-q", "--json", "--warmup", "0", "--keys", "20", "-n", "2", "--depth", "4", "-s", addr];
    Command::new(env!("CARGO_BIN_EXE_corral-bench"))
        .args(flags)
        .args(common)
        .output()
        .expect("the generator can be started")
}

#[track_caller]
fn succeeds(addr: &str, flags: &[&str]) -> serde_json::Value {
    let output = bench(addr, flags);
    assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("--json prints one line of JSON")
}

#[track_caller]
fn caught(fault: Fault, flags: &[&str], part: &str) {
    let output = bench(&server(fault), flags);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{fault:?} is not noticed: {error}");
    assert!(error.contains(part), "{fault:?} is told as {error:?}, not {part:?}");
    assert!(output.stdout.is_empty(), "{fault:?}: figures of a failed run are printed");
}

#[test]
fn wrong_replies_end_the_run() {
    let get = ["--duration", "10"];
    caught(Fault::WrongXid, &get, "the request next in turn has");
    caught(Fault::Swapped, &get, "the request next in turn has");
    caught(Fault::WrongData, &get, "value is wrong");
    caught(Fault::OtherZnode, &get, "Stat.czxid is wrong: expected 0x1, found 0x2");
    caught(Fault::FallingZxid, &get, "which this session saw already");
    caught(Fault::WrongError, &get, "NONODE (-101)");
    caught(Fault::ShortRecord, &get, "cannot be decoded");
    caught(Fault::LongRecord, &get, "1 bytes follow");
    caught(Fault::NoFrame, &get, "the server sent no frame");
    caught(Fault::HangUp, &get, "the server closed the connection");
    caught(Fault::WrongXid, &["--op", "set", "--duration", "10"], "the request next in turn has");
    caught(Fault::ShortRecord, &["--op", "multi", "--duration", "10"], "cannot be decoded");
    caught(Fault::WrongError, &["--op", "exists", "--rate", "5000", "--duration", "10"], "NONODE (-101)");
}

/// Runs a scenario; gives its exit code and what it says.
fn scenario(fault: Fault, words: &str) -> (Option<i32>, String) {
    let addr = server_after(0, fault);
    let output = Command::new(env!("CARGO_BIN_EXE_corral-bench"))
        .args(words.split_whitespace())
        .args(["-q", "--reply-timeout", "2", "-s", &addr])
        .output()
        .expect("the generator can be started");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn scenarios_notice_wrong_replies_and_events() {
    let caught = |fault: Fault, words: &str, part: &str| {
        let (code, error) = scenario(fault, words);
        assert_eq!(code, Some(1), "{fault:?} is not noticed by {words:?}: {error}");
        assert!(error.contains(part), "{fault:?} is told as {error:?}, not {part:?}");
    };
    let watches = "watches -n 5 --rounds 2";
    assert_eq!(scenario(Fault::Nothing, watches), (Some(0), String::new()));
    caught(Fault::WrongXid, watches, "the request next in turn has");
    caught(Fault::WrongData, watches, "the value read is not the one written");
    caught(Fault::WrongError, watches, "NONODE (-101)");
    caught(Fault::ShortRecord, watches, "cut short");
    caught(Fault::HangUp, watches, "the server closed the connection");
    caught(Fault::WrongEvent, watches, "event path is wrong");
    caught(Fault::StaleRead, watches, "Stat.version is wrong: expected 1, found 0");
    // The second event comes before or after the round's last first one.
    let (code, error) = scenario(Fault::DoubleEvent, watches);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("two events for one write") || error.contains("which was not requested"), "{error}");
    caught(Fault::EveryoneHolds, "recipes -n 2 --hold-ms 200 --duration 2", "two hold at once");
    caught(Fault::EveryoneHolds, "recipes -n 2 --duration 2", "number 1 in line holds after number 1");
    caught(Fault::WrongXid, "idle -n 3 --watches 2 --keys 5 --hold 0.1", "the request next in turn has");
    caught(Fault::WrongError, "flood --polite 2 --duration 2", "NONODE (-101)");
}

#[test]
fn the_honest_server_is_content() {
    let addr = server(Fault::Nothing);
    let mix = "get=5,set=2,create=3,delete=2,exists=1,children=1,multi=1";
    let report = succeeds(&addr, &["--mix", mix, "--children", "3", "--ops", "3000"]);
    let by_op = report["by_op"].as_object().expect("a map");
    assert_eq!(by_op.len(), 7, "{report}");
    let sum: u64 = by_op.values().map(|of| of["operations"].as_u64().expect("a count")).sum();
    assert_eq!(report["operations"].as_u64(), Some(sum));
    assert!(sum >= 3000, "{report}");
    assert_eq!(report["errors"].as_object().map(serde_json::Map::len), Some(0));
}

#[test]
fn tolerated_errors_are_counted_and_their_consequences_checked() {
    let mix = ["--mix", "create=3,delete=2", "--ops", "2000"];
    let report = succeeds(&server(Fault::Throttles), &mix);
    let errors = |name: &str| report["errors"][name].as_u64().unwrap_or(0);
    assert!(errors("THROTTLEDOP") > 50, "{report}");
    assert!((1..=errors("THROTTLEDOP")).contains(&errors("NONODE")), "{report}");
    let rows = report["timeline"].as_array().expect("a list");
    let in_rows: u64 = rows.iter().map(|row| row["errors"].as_u64().expect("a count")).sum();
    assert!(in_rows > 0 && in_rows <= errors("THROTTLEDOP") + errors("NONODE"), "{report}");
    caught(Fault::Throttles, &[&mix[..], &["--tolerate", "NOAUTH"]].concat(), "THROTTLEDOP (-127)");
    caught(Fault::ThrottlesAndForgets, &mix, "instead of NONODE (-101)");
}

#[test]
fn an_open_loop_charges_a_stall_to_all_who_waited() {
    let addr = server(Fault::Stalls);
    let open = succeeds(&addr, &["--rate", "1000", "--duration", "3"]);
    let us = |report: &serde_json::Value, name: &str| report["latency_us"][name].as_f64().expect("a number");
    // A third of a second in three is lost: of all requests a good tenth waits for 200 ms or more.
    assert!(us(&open, "p90") > 50_000.0, "{open}");
    assert!(us(&open, "p99") > 200_000.0, "{open}");
    let rows = open["timeline"].as_array().expect("a list");
    assert!(rows.iter().any(|row| row["max_us"].as_f64() > Some(250_000.0)), "the timeline shows it: {open}");
    // A closed loop cannot see it: few requests were in flight. That is why there is an open one.
    let closed = succeeds(&addr, &["--duration", "3"]);
    assert!(us(&closed, "p90") < us(&open, "p90"), "{closed}");
}

#[test]
fn the_timeline_adds_up_and_the_keys_stay() {
    let csv = std::env::temp_dir().join(format!("corral-bench-{}.csv", std::process::id()));
    let file = csv.to_str().expect("a name");
    let addr = server(Fault::Nothing);
    let folder = std::env::temp_dir().join(format!("corral-bench-plots-{}", std::process::id()));
    let plots = folder.to_str().expect("a name");
    let flags = ["--duration", "1", "--interval", "0.2", "-t", "2", "--csv", file, "--svg", plots];
    let report = succeeds(&addr, &flags);
    for name in ["throughput.svg", "latency.svg"] {
        let plot = std::fs::read_to_string(folder.join(name)).expect("the plot was written");
        assert!(plot.contains("<svg") && plot.contains("<polyline"), "{name}: {plot}");
    }
    std::fs::remove_dir_all(&folder).expect("it is there");
    let rows = report["timeline"].as_array().expect("a list");
    assert_eq!(rows.len(), 5, "{report}");
    let sum: u64 = rows.iter().map(|row| row["operations"].as_u64().expect("a count")).sum();
    assert_eq!(Some(sum), report["operations"].as_u64());
    let seconds: f64 = rows.iter().map(|row| row["seconds"].as_f64().expect("a length")).sum();
    assert!((seconds - report["seconds"].as_f64().expect("a length")).abs() < 1e-6, "{report}");
    let lines = std::fs::read_to_string(&csv).expect("the file was written");
    std::fs::remove_file(&csv).expect("it is there");
    assert_eq!(lines.lines().count(), 6, "{lines}");
    assert!(lines.starts_with("start_s,seconds,operations,throughput,p50_us,p99_us,p99_9_us,max_us,errors\n"));
    let keys: Vec<&str> = report.as_object().expect("an object").keys().map(String::as_str).collect();
    let expected = "backlog by_op client_cpu_us_per_op client_cpus_busy command connections depth errors keys \
                    keys_distribution label latency_us machine mix offered_rate op operations percentiles remarks \
                    scenario seconds server_cpu_us_per_op server_cpus_busy server_resident_kib threads throughput \
                    timeline unix_time value_bytes value_bytes_min";
    assert_eq!(keys.join(" "), expected, "scripts rely on these");
}
