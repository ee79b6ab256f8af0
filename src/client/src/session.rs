//! A session, and the task that keeps it: it connects, pings, sends requests, hands out answers and events, and connects again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corral_wire::consts::{
    EventType, KeeperState, WatcherType, XID_AUTH, XID_NOTIFICATION, XID_PING, XID_SET_WATCHES, ZXID_UNNUMBERED,
};
use corral_wire::limits::REPLY_HEADER_BYTES;
use corral_wire::records::{AuthPacket, ReplyHeader, RequestHeader, SetWatches2, WatcherEvent};
use corral_wire::vector::{Strings, VectorBuf};
use corral_wire::{ErrorCode, OpCode, Reader, Writer};
use rustls::ClientConfig;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::address::Servers;
use crate::connection::{Connection, Credentials, Granted, Handshake};
use crate::error::Error;
use crate::watches::{Event, Kind, Watcher, Watches};

/// Requests that were not sent yet.
const QUEUE_MAX: usize = 4096;
/// Requests that were sent and are not answered.
const IN_FLIGHT_MAX: usize = 1024;
/// While more waits to be sent, no request is taken.
const UNSENT_BYTES_MAX: usize = 4 << 20;
/// Pauses between attempts to connect are at most as long.
const PAUSE_MAX: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The end of a session is not waited for longer.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);
/// Of the timeout. The last tenth is for clocks that differ, and for ending the work that the session protects.
const KEPT_TENTHS: u32 = 9;
/// Bytes of the paths of one setWatches at most. Java's client has the same limit.
const SET_WATCHES_BYTES_MAX: usize = 128 << 10;

/// How a session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not connected, for the reason if there was a connection or an attempt. The server may know the session still.
    Disconnected {
        /// When the server was heard of last.
        since: Instant,
        /// Empty before the first attempt has failed.
        reason: String,
    },
    /// A server answers.
    Connected {
        /// Whether it takes no writes now.
        is_read_only: bool,
    },
    /// Over. Requests fail with this error.
    Ended(Error),
}

/// A scheme and its credentials, which may be null.
pub type Identity = (String, Option<Vec<u8>>);

/// How a session is opened.
pub struct Connector {
    /// Where to.
    pub servers: Servers,
    /// The timeout of the session that is asked for.
    pub timeout: Duration,
    /// Whether a server without a quorum will do.
    pub read_only: bool,
    /// Sent with each connection.
    pub identities: Vec<Identity>,
    /// The user of SASL.
    pub sasl: Option<Credentials>,
    /// For servers that take TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// Is told of changes of the session's state.
    pub watcher: Option<Watcher>,
}

impl Connector {
    /// A session of ten seconds without identities.
    pub fn new(servers: Servers) -> Connector {
        Connector {
            servers,
            timeout: Duration::from_secs(10),
            read_only: false,
            identities: Vec::new(),
            sasl: None,
            tls: None,
            watcher: None,
        }
    }
}

/// The client's end of a session.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) status: watch::Receiver<Status>,
    /// Until when no server expires the session.
    pub(crate) kept: watch::Receiver<Instant>,
}

/// Begins to connect, in a task.
pub(crate) fn begin(connector: Connector) -> Handle {
    let (requests, receiver) = mpsc::channel(QUEUE_MAX);
    let status = Status::Disconnected { since: Instant::now(), reason: String::new() };
    let (publish, status) = watch::channel(status);
    let Connector { timeout, read_only, .. } = connector;
    let (publish_kept, kept) = watch::channel(Instant::now() + timeout);
    let mut session = Session {
        handshake: Handshake { id: 0, password: [0; 16], timeout, last_zxid: 0, read_only },
        order: order(connector.servers.hosts.len()),
        connector,
        requests: receiver,
        in_flight: VecDeque::new(),
        auths: VecDeque::new(),
        watches: Watches::default(),
        publish,
        publish_kept,
        pinged: None,
        xid: 0,
    };
    tokio::spawn(async move { session.run().await });
    Handle { requests, status, kept }
}

/// The indexes of a list in random order, so that clients spread over the servers.
fn order(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut bytes = [0; 8];
    // Without random numbers the order is that of the list.
    let _ = getrandom::fill(&mut bytes);
    let mut seed = u64::from_be_bytes(bytes);
    for last in (1..count).rev() {
        let among = last as u64 + 1;
        order.swap(last, usize::try_from(seed % among).unwrap_or_default());
        seed /= among;
    }
    order
}

/// The bytes behind the header, or the error.
pub(crate) type Answer = Result<Bytes, Error>;

/// The duty of the session when a request was answered.
pub(crate) enum After {
    Nothing,
    /// Keeps the watch.
    Watch(Kind, String, Watcher),
    /// Keeps the watch, whether the znode exists or not.
    WatchExists(String, Watcher),
    /// Forgets the watches of a path, and tells the watchers. If so wanted also without the server.
    RemoveWatches {
        path: String,
        which: WatcherType,
        local: bool,
    },
}

pub(crate) enum Request {
    Operation {
        op: OpCode,
        body: Vec<u8>,
        after: After,
        answer: oneshot::Sender<Answer>,
    },
    /// For this connection and all later ones.
    Authenticate {
        scheme: String,
        credentials: Option<Vec<u8>>,
        answer: oneshot::Sender<Answer>,
    },
    Close,
}

struct InFlight {
    xid: i32,
    sent: Instant,
    after: After,
    answer: oneshot::Sender<Answer>,
}

struct Session {
    connector: Connector,
    /// Of the hosts.
    order: Vec<usize>,
    handshake: Handshake,
    requests: mpsc::Receiver<Request>,
    in_flight: VecDeque<InFlight>,
    /// Authentications that are not answered. `None` is one of the connection's beginning.
    auths: VecDeque<Option<oneshot::Sender<Answer>>>,
    watches: Watches,
    publish: watch::Sender<Status>,
    publish_kept: watch::Sender<Instant>,
    /// When the ping was sent that is not answered.
    pinged: Option<Instant>,
    xid: i32,
}

/// Why a connection is not served any longer.
enum Lost {
    /// It may be replaced.
    Connection(Error),
    /// The session is over.
    Session(Error),
    /// The client wants to close it.
    Closed,
}

impl Session {
    async fn run(&mut self) {
        let mut received_at = Instant::now();
        let end = loop {
            let connection = match self.connect().await {
                Ok(connection) => connection,
                Err(Lost::Connection(error)) => {
                    let last = self.publish.borrow().clone();
                    self.lose(&error, received_at);
                    if self.pause(&last).await { continue } else { break ErrorCode::Closing.into() }
                }
                Err(Lost::Session(error)) => break error,
                Err(Lost::Closed) => break ErrorCode::Closing.into(),
            };
            let mut connection = connection;
            let lost = self.serve(&mut connection, &mut received_at).await;
            match lost {
                Lost::Connection(error) => self.lose(&error, received_at),
                Lost::Session(error) => break error,
                Lost::Closed => {
                    self.close(connection).await;
                    break ErrorCode::Closing.into();
                }
            }
        };
        let state = match end.code {
            ErrorCode::SessionExpired => KeeperState::Expired,
            ErrorCode::AuthFailed => KeeperState::AuthFailed,
            _ => KeeperState::Closed,
        };
        self.fail_all(&end);
        self.publish.send_replace(Status::Ended(end.clone()));
        self.tell_state(state);
        while let Some(request) = self.requests.recv().await {
            refuse(request, &end);
        }
    }

    /// Tries each server once.
    async fn connect(&mut self) -> Result<Connection, Lost> {
        let count = u32::try_from(self.order.len()).unwrap_or(u32::MAX).max(1);
        let within = self.handshake.timeout / count;
        let mut last = Error::new(ErrorCode::ConnectionLoss, "no server");
        for _ in 0..count {
            self.order.rotate_left(1);
            let (host, port) = self.connector.servers.hosts[self.order[0]].clone();
            let late = || Error::new(ErrorCode::ConnectionLoss, format!("{host}:{port}: no answer in time"));
            match timeout(within, self.begin(&host, port)).await.unwrap_or_else(|_| Err(late())) {
                Ok(connection) => return Ok(connection),
                Err(error) if matches!(error.code, ErrorCode::SessionExpired | ErrorCode::AuthFailed) => {
                    return Err(Lost::Session(error));
                }
                Err(error) if error.reason.contains(&host) => last = error,
                Err(error) => last = Error::new(error.code, format!("{host}:{port}: {}", error.reason)),
            }
            if self.requests.is_closed() && self.requests.is_empty() {
                return Err(Lost::Closed);
            }
        }
        last.code = ErrorCode::ConnectionLoss;
        Err(Lost::Connection(last))
    }

    async fn begin(&mut self, host: &str, port: u16) -> Result<Connection, Error> {
        let mut connection = Connection::open(host, port, self.connector.tls.clone()).await?;
        let asked = Instant::now();
        let granted = connection.shake_hands(&self.handshake).await?;
        let Granted { id, password, timeout, is_read_only } = granted;
        self.handshake = Handshake { id, password, timeout, ..self.handshake };
        self.pinged = None;
        self.keep(asked);
        if let Some(user) = &self.connector.sasl {
            connection.authenticate(user, &mut self.xid).await?;
        }
        for (scheme, credentials) in &self.connector.identities {
            connection.send(|writer| auth(writer, scheme, credentials.as_deref()))?;
            self.auths.push_back(None);
        }
        self.set_watches(&mut connection)?;
        self.publish.send_replace(Status::Connected { is_read_only });
        self.tell_state(if is_read_only { KeeperState::ConnectedReadOnly } else { KeeperState::SyncConnected });
        if self.connector.sasl.is_some() {
            self.tell_state(KeeperState::SaslAuthenticated);
        }
        Ok(connection)
    }

    /// Waits before the next attempt, and refuses requests meanwhile. False if the session is to be closed.
    async fn pause(&mut self, last: &Status) -> bool {
        let was_connected = matches!(last, Status::Connected { .. });
        let pause = if was_connected { PAUSE_MIN } else { (self.handshake.timeout / 10).clamp(PAUSE_MIN, PAUSE_MAX) };
        let (until, error) = (Instant::now() + pause, self.reason());
        loop {
            tokio::select! {
                request = self.requests.recv() => match request {
                    None | Some(Request::Close) => return false,
                    Some(request) => self.refuse_now(request, &error),
                },
                () = sleep_until(until) => return true,
            }
        }
    }

    fn reason(&self) -> Error {
        match &*self.publish.borrow() {
            Status::Disconnected { reason, .. } => Error::new(ErrorCode::ConnectionLoss, reason.clone()),
            _ => ErrorCode::ConnectionLoss.into(),
        }
    }

    /// An identity is kept for the next connection. Watches are forgotten at once if that was asked for.
    fn refuse_now(&mut self, request: Request, error: &Error) {
        match request {
            Request::Authenticate { scheme, credentials, answer } => {
                self.connector.identities.push((scheme, credentials));
                let _ = answer.send(Err(error.clone()));
            }
            Request::Operation { after: After::RemoveWatches { path, which, local: true }, answer, .. } => {
                let removed = self.remove_watches(&path, which);
                let _ = answer.send(removed.map(|()| Bytes::new()));
            }
            request => refuse(request, error),
        }
    }

    async fn serve(&mut self, connection: &mut Connection, received_at: &mut Instant) -> Lost {
        *received_at = Instant::now();
        let mut sent = *received_at;
        loop {
            let timeout = self.handshake.timeout;
            let may_send = self.in_flight.len() < IN_FLIGHT_MAX && connection.unsent() < UNSENT_BYTES_MAX;
            tokio::select! {
                frame = connection.exchange() => {
                    *received_at = Instant::now();
                    if let Err(lost) = frame.map_err(Lost::Connection).and_then(|frame| self.take(&frame.freeze())) {
                        return lost;
                    }
                }
                request = self.requests.recv(), if may_send => {
                    let Some(request) = request else { return Lost::Closed };
                    sent = Instant::now();
                    if let Err(lost) = self.send(connection, request) {
                        return lost;
                    }
                }
                () = sleep_until(sent + timeout / 3) => {
                    sent = Instant::now();
                    self.pinged.get_or_insert(sent);
                    let ping = |writer: &mut Writer<'_>| header(writer, XID_PING, OpCode::Ping);
                    if let Err(error) = connection.send(ping) {
                        return Lost::Connection(error);
                    }
                }
                () = sleep_until(*received_at + timeout * 2 / 3) => {
                    let reason = format!("the server was silent for {} ms", (timeout * 2 / 3).as_millis());
                    return Lost::Connection(Error::new(ErrorCode::ConnectionLoss, reason));
                }
            }
        }
    }

    fn send(&mut self, connection: &mut Connection, request: Request) -> Result<(), Lost> {
        match request {
            Request::Operation { op, body, after, answer } => {
                // Numbers below 0 have a meaning of their own.
                self.xid = self.xid.checked_add(1).unwrap_or(1);
                let xid = self.xid;
                let framed = connection.send(|writer| {
                    header(writer, xid, op);
                    writer.raw(&body);
                });
                match framed {
                    Ok(()) => self.in_flight.push_back(InFlight { xid, sent: Instant::now(), after, answer }),
                    Err(error) => drop(answer.send(Err(error))),
                }
            }
            Request::Authenticate { scheme, credentials, answer } => {
                connection.send(|writer| auth(writer, &scheme, credentials.as_deref())).map_err(Lost::Connection)?;
                self.auths.push_back(Some(answer));
                self.connector.identities.push((scheme, credentials));
            }
            Request::Close => return Err(Lost::Closed),
        }
        Ok(())
    }

    fn take(&mut self, frame: &Bytes) -> Result<(), Lost> {
        let broken = |error: Error| Lost::Connection(error);
        let header = ReplyHeader::decode(&mut Reader::new(frame)).map_err(|error| broken(error.into()))?;
        let body = frame.slice(REPLY_HEADER_BYTES..);
        match header.xid {
            XID_NOTIFICATION => {
                let event = WatcherEvent::decode(&mut Reader::new(&body)).map_err(|error| broken(error.into()))?;
                self.take_event(&event, header.zxid);
                return Ok(());
            }
            XID_PING => {
                if let Some(sent) = self.pinged.take() {
                    self.keep(sent);
                }
                return Ok(());
            }
            XID_SET_WATCHES => return Ok(()),
            XID_AUTH => return self.take_auth(header.err),
            _ => {}
        }
        let unexpected = || Error::new(ErrorCode::MarshallingError, format!("answer {} was not expected", header.xid));
        let InFlight { xid, sent, after, answer } = self.in_flight.pop_front().ok_or_else(|| broken(unexpected()))?;
        if xid != header.xid {
            let _ = answer.send(Err(unexpected()));
            return Err(broken(unexpected()));
        }
        self.keep(sent);
        if header.zxid > 0 {
            self.handshake.last_zxid = header.zxid;
        }
        let mut result = if header.err == 0 { Ok(body) } else { Err(Error::of_answer(header.err)) };
        if let Err(error) = self.finish(after, result.is_ok(), header.err) {
            result = Err(error);
        }
        // The request may have been given up.
        let _ = answer.send(result);
        Ok(())
    }

    /// Something sent then was answered, so the server has kept the session from then on.
    fn keep(&self, sent: Instant) {
        self.publish_kept.send_replace(sent + self.handshake.timeout * KEPT_TENTHS / 10);
    }

    fn finish(&mut self, after: After, is_done: bool, code: i32) -> Result<(), Error> {
        let has_room = match after {
            After::Watch(kind, path, watcher) if is_done => self.watches.add(kind, path, watcher),
            After::WatchExists(path, watcher) if is_done => self.watches.add(Kind::Data, path, watcher),
            After::WatchExists(path, watcher) if code == ErrorCode::NoNode.code() => {
                self.watches.add(Kind::Exists, path, watcher)
            }
            After::RemoveWatches { path, which, local } if is_done || local => {
                self.remove_watches(&path, which)?;
                true
            }
            _ => true,
        };
        if has_room { Ok(()) } else { Err(Error::new(ErrorCode::SystemError, "the session has too many watches")) }
    }

    fn remove_watches(&mut self, path: &str, which: WatcherType) -> Result<(), Error> {
        let removed = self.watches.remove(path, which);
        if removed.is_empty() {
            return Err(ErrorCode::NoWatcher.into());
        }
        for (kind, watchers) in removed {
            let path = self.connector.servers.own(path).to_owned();
            let event = Event { kind, state: KeeperState::SyncConnected, path, zxid: ZXID_UNNUMBERED };
            for watcher in watchers {
                watcher.tell(event.clone());
            }
        }
        Ok(())
    }

    fn take_auth(&mut self, code: i32) -> Result<(), Lost> {
        let asked = self.auths.pop_front().flatten();
        let refused = Error::new(ErrorCode::AuthFailed, "the server refuses an identity");
        if let Some(answer) = asked {
            let _ = answer.send(if code == 0 { Ok(Bytes::new()) } else { Err(refused.clone()) });
        }
        // ZooKeeper closes the connection, and its clients give the session up.
        if code == 0 { Ok(()) } else { Err(Lost::Session(refused)) }
    }

    fn take_event(&mut self, event: &WatcherEvent<'_>, zxid: i64) {
        let Some(kind) = EventType::from_i32(event.event_type) else { return };
        let path = event.path.unwrap_or_default();
        let told = self.watches.fire(kind, path);
        let state = KeeperState::from_i32(event.state).unwrap_or(KeeperState::Unknown);
        let path = self.connector.servers.own(path);
        for watcher in told {
            watcher.tell(Event { kind, state, path: path.to_owned(), zxid });
        }
    }

    fn tell_state(&self, state: KeeperState) {
        if let Some(watcher) = &self.connector.watcher {
            watcher.tell(Event { kind: EventType::None, state, path: String::new(), zxid: ZXID_UNNUMBERED });
        }
    }

    /// Sets all watches again, in several requests if there are many.
    fn set_watches(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let kinds = [Kind::Data, Kind::Exists, Kind::Children, Kind::Persistent, Kind::Recursive];
        let all: Vec<(usize, &str)> =
            (0..).zip(kinds).flat_map(|(at, kind)| self.watches.paths(kind).map(move |path| (at, path))).collect();
        let mut rest = &all[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(_, path)| {
                bytes += path.len();
                bytes <= SET_WATCHES_BYTES_MAX
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let lists = [0, 1, 2, 3, 4]
                .map(|kind| VectorBuf::of(now.iter().filter(|(own, _)| *own == kind).map(|(_, path)| Some(*path))));
            let list = |at: usize| -> Result<Option<Strings<'_>>, Error> { Ok(Some(lists[at].view()?)) };
            let record = SetWatches2 {
                relative_zxid: self.handshake.last_zxid,
                data_watches: list(0)?,
                exist_watches: list(1)?,
                child_watches: list(2)?,
                persistent_watches: list(3)?,
                persistent_recursive_watches: list(4)?,
            };
            connection.send(|writer| {
                header(writer, XID_SET_WATCHES, OpCode::SetWatches2);
                record.encode(writer);
            })?;
            rest = later;
        }
        Ok(())
    }

    fn lose(&mut self, error: &Error, received_at: Instant) {
        let was_connected = matches!(&*self.publish.borrow(), Status::Connected { .. });
        let reason = if error.reason.is_empty() { error.to_string() } else { error.reason.clone() };
        self.publish.send_replace(Status::Disconnected { since: received_at, reason });
        self.fail_all(&Error { code: ErrorCode::ConnectionLoss, ..error.clone() });
        while let Ok(request) = self.requests.try_recv() {
            if matches!(request, Request::Close) {
                self.requests.close();
            }
            self.refuse_now(request, error);
        }
        if was_connected {
            self.tell_state(KeeperState::Disconnected);
        }
    }

    fn fail_all(&mut self, error: &Error) {
        for InFlight { answer, .. } in self.in_flight.drain(..) {
            let _ = answer.send(Err(error.clone()));
        }
        for answer in self.auths.drain(..).flatten() {
            let _ = answer.send(Err(error.clone()));
        }
    }

    /// Closes the session at the server. Its own ephemerals may have watches, which fire first.
    async fn close(&mut self, mut connection: Connection) {
        let xid = self.xid.checked_add(1).unwrap_or(1);
        if connection.send(|writer| header(writer, xid, OpCode::CloseSession)).is_err() {
            return;
        }
        let rest = async {
            while let Ok(frame) = connection.exchange().await {
                // The answer to the close is not waited for as others are, and ends this.
                if self.take(&frame.freeze()).is_err() {
                    break;
                }
            }
        };
        let _ = timeout(CLOSED_WITHIN, rest).await;
    }
}

fn refuse(request: Request, error: &Error) {
    match request {
        Request::Operation { answer, .. } | Request::Authenticate { answer, .. } => {
            drop(answer.send(Err(error.clone())))
        }
        Request::Close => {}
    }
}

fn header(writer: &mut Writer<'_>, xid: i32, op: OpCode) {
    RequestHeader { xid, op: op.number() }.encode(writer);
}

fn auth(writer: &mut Writer<'_>, scheme: &str, auth: Option<&[u8]>) {
    header(writer, XID_AUTH, OpCode::Auth);
    AuthPacket { auth_type: 0, scheme: Some(scheme), auth }.encode(writer);
}
