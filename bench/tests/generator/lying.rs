//! A server that lies: it answers as the echo does, but for one fault.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use corral_bench::echo::{EchoArgs, EchoSession, Replies};
use corral_wire::consts::{EventType, KeeperState};
use corral_wire::frame::{FRAME_MAX_DEFAULT, append_frame, next_frame};
use corral_wire::limits::STAT_BYTES;
use corral_wire::records::{
    CreateRequest, CreateResponse, GetChildren2Response, GetDataRequest, ReplyHeader, RequestHeader, SetDataRequest,
    Stat, WatcherEvent,
};
use corral_wire::{ErrorCode, OpCode, Reader, VectorBuf, Writer};

/// The fault of the server, after so many right reads and writes on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    WrongXid,
    WrongData,
    FallingZxid,
    WrongError,
    NoFrame,
    HangUp,
    Silence,
    /// Every tenth write is refused as throttled.
    Throttles,
    /// Every session is told that it is the first and only contender.
    EveryoneHolds,
    /// A watcher gets two events for each write.
    DoubleEvent,
    /// A watcher gets an event of another znode.
    WrongEvent,
    /// A read after a write does not show it.
    StaleRead,
    /// No reply for a second, once on each connection.
    Stalls,
}

/// Right replies before the first wrong one, in a load.
pub(crate) const HONEST: u64 = 100;

/// Starts the server; it ends with the test's process.
pub(crate) fn server(honest: u64, fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = listener.local_addr().expect("it is bound").to_string();
    let world = Arc::new(Mutex::new(World::default()));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let world = Arc::clone(&world);
            thread::spawn(move || Session { honest, fault, asked: 0, writes: 0, world, stream }.serve());
        }
    });
    addr
}

/// The shared state of the sessions: one znode.
#[derive(Default)]
struct World {
    version: i32,
    watchers: Vec<TcpStream>,
}

struct Session {
    honest: u64,
    fault: Fault,
    /// Reads and writes so far, and the writes of them.
    asked: u64,
    writes: u64,
    world: Arc<Mutex<World>>,
    stream: TcpStream,
}

impl Session {
    /// Serves until the client closes the connection or the fault ends it.
    fn serve(&mut self) {
        let args = EchoArgs { addr: String::new(), cpu: None, value_bytes: Some(100), children: 3 };
        let mut replies = Replies::of(&args).expect("small values");
        let (mut echo, mut input, mut greeted) = (EchoSession::default(), Vec::new(), false);
        let mut buf = [0; 65_536];
        self.stream.set_nodelay(true).expect("a socket");
        while let Ok(bytes @ 1..) = self.stream.read(&mut buf) {
            input.extend_from_slice(&buf[..bytes]);
            while let Some((body, used)) = next_frame(&input, FRAME_MAX_DEFAULT).expect("the generator sends frames") {
                let body = body.to_vec();
                echo.take(&input[..used], &mut replies).expect("the generator sends requests");
                let reply = std::mem::take(&mut echo.out);
                let reply = if greeted { self.spoiled(&body, reply) } else { Some(reply) };
                let sent = reply.is_some_and(|reply| self.stream.write_all(&reply).is_ok());
                if !sent {
                    // Unread bytes would make the kernel reset the connection.
                    let _ = self.stream.shutdown(Shutdown::Write).and_then(|()| self.stream.read_to_end(&mut input));
                    return;
                }
                (greeted, _) = (true, input.drain(..used));
            }
        }
    }

    /// The bytes that are sent instead of the echo's reply; `None` to close the connection.
    fn spoiled(&mut self, body: &[u8], mut reply: Vec<u8>) -> Option<Vec<u8>> {
        let mut reader = Reader::new(body);
        let RequestHeader { xid, op } = RequestHeader::decode(&mut reader).expect("a request header");
        let op = OpCode::from_i32(op).expect("a known operation");
        let write = op == OpCode::SetData;
        self.writes += u64::from(write);
        self.asked += u64::from(write || matches!(op, OpCode::GetData | OpCode::Exists));
        let wrong = self.asked > self.honest;
        match self.fault {
            Fault::WrongXid if wrong => reply[7] ^= 1,
            Fault::WrongData if wrong && op == OpCode::GetData => reply[50] ^= 1,
            Fault::FallingZxid if wrong => reply[8..16].fill(0),
            Fault::WrongError if wrong => return Some(refused(xid, ErrorCode::NoNode)),
            Fault::Throttles if write && self.writes % 10 == 9 => return Some(refused(xid, ErrorCode::ThrottledOp)),
            Fault::NoFrame if wrong => return Some(vec![0xff; 8]),
            Fault::HangUp if wrong => return None,
            Fault::Silence if wrong => return Some(Vec::new()),
            Fault::Stalls if self.asked == 1 => thread::sleep(Duration::from_secs(1)),
            _ => {}
        }
        let mut world = self.world.lock().expect("no session panics");
        match op {
            OpCode::GetData => {
                let version = if self.fault == Fault::StaleRead { 0 } else { world.version };
                let at = reply.len() - STAT_BYTES + 32;
                reply[at..at + 4].copy_from_slice(&version.to_be_bytes());
                if GetDataRequest::decode(&mut reader).expect("a getData").watch {
                    world.watchers.push(self.stream.try_clone().expect("a socket"));
                }
            }
            OpCode::SetData => {
                world.version += 1;
                let path = SetDataRequest::decode(&mut reader).expect("a setData").path;
                let path = if self.fault == Fault::WrongEvent { Some("/elsewhere") } else { path };
                let (event_type, state) = (EventType::NodeDataChanged.number(), KeeperState::SyncConnected.number());
                let event = frame(ReplyHeader::notification(-1), |writer| {
                    WatcherEvent { event_type, state, path }.encode(writer);
                });
                let events = event.repeat(if self.fault == Fault::DoubleEvent { 2 } else { 1 });
                for mut watcher in world.watchers.drain(..) {
                    watcher.write_all(&events).expect("the watcher is there");
                }
            }
            OpCode::Create if self.fault == Fault::EveryoneHolds => {
                let request = CreateRequest::decode(&mut reader).expect("a create");
                let suffix = if request.flags == 0 { "" } else { "0000000001" };
                let path = format!("{}{suffix}", request.path.expect("a path"));
                reply = frame(ReplyHeader::ok(xid, 1), |writer| CreateResponse { path: Some(&path) }.encode(writer));
            }
            OpCode::GetChildren2 if self.fault == Fault::EveryoneHolds => {
                let names = VectorBuf::of([Some("m-0000000001")]);
                let (children, stat) = (Some(names.view().expect("just made")), Stat::default());
                reply = frame(ReplyHeader::ok(xid, 1), |writer| GetChildren2Response { children, stat }.encode(writer));
            }
            _ => {}
        }
        Some(reply)
    }
}

fn frame(header: ReplyHeader, record: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    let encoded = append_frame(&mut out, |writer| {
        header.encode(writer);
        record(writer);
    });
    encoded.map(|()| out).expect("small")
}

fn refused(xid: i32, code: ErrorCode) -> Vec<u8> {
    frame(ReplyHeader::error(xid, 1, code), |_| {})
}
