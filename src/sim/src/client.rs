//! Simulated clients: each keeps one session, over as many connections as it takes, and speaks real bytes.

use std::collections::BTreeSet;

use corral_wire::Reader;
use corral_wire::frame::next_frame;
use corral_wire::records::{ConnectResponse, ReplyHeader, WatcherEvent};

use crate::limits::REPLY_BYTES_MAX;
use crate::link::{Link, Sent, address};
use crate::model::{CHILDREN_CHANGED, DELETED, LinkId, SUPER};
use crate::options::Bug;
use crate::request::{self, Body, Request, WatchKind, WatchLists};
use crate::rng::Stream;
use crate::violation::{Checked, Violation, require};
use crate::workload::Workload;
use crate::world::{Channel, Event, Stage, World};

/// How long a client waits for an answer to its connect request, or for the end of a doomed connection.
const CONNECT_TIMEOUT: u64 = 3_000_000;
const THROTTLED: i32 = -127;

#[derive(Debug, Default)]
pub(crate) struct Client {
    link: Option<LinkId>,
    session: i64,
    password: [u8; 16],
    timeout_ms: i32,
    last_zxid: i64,
    xid: i32,
    auths: Vec<&'static str>,
    operator: bool,
    /// Watches it believes to have.
    watches: WatchLists,
    /// Of those on data: the znodes that existed.
    existed: BTreeSet<String>,
    reads_not: bool,
    silent_until: u64,
    workload: Workload,
    pub(crate) healthy_replies: u64,
    /// It is time for the last ping, which brings every event.
    pub(crate) last_words: bool,
    /// .. and was answered, and with it everything before.
    pub(crate) last_words_answered: bool,
}

impl Client {
    /// An operator may do everything.
    pub(crate) fn draw(rng: &mut Stream, keeper: bool, operator: bool) -> Client {
        let mut auths = match rng.below(4) {
            0 => vec!["ann:apple"],
            1 => vec!["bob:berry", "ann:apple"],
            _ => Vec::new(),
        };
        auths.extend(operator.then_some(SUPER));
        Client {
            operator,
            timeout_ms: rng.pick(&[0, 1_000, 2_000, 4_000, 60_000]),
            auths,
            workload: Workload::new(rng.below(1 << 20), keeper),
            ..Client::default()
        }
    }

    fn forget_session(&mut self) {
        self.session = 0;
        self.password = [0; 16];
        self.last_zxid = 0;
        self.watches = WatchLists::default();
    }

    /// The request of a reconnecting client to have its watches again; `None` when it has none.
    fn watches_again(&self) -> Option<Request> {
        let list = |paths: &BTreeSet<String>| paths.iter().cloned().collect();
        let WatchLists { data, child, persistent, recursive } = &self.watches;
        let (data, exist) = data.iter().cloned().partition(|path| self.existed.contains(path));
        let (child, persistent, recursive) = (list(child), list(persistent), list(recursive));
        let request = Request::SetWatches { seen: self.last_zxid, data, exist, child, persistent, recursive };
        (!self.watches.is_empty()).then_some(request)
    }
}

impl World {
    pub(crate) fn act(&mut self, client: usize) {
        if self.stage == Stage::Fading {
            return;
        }
        let wait = match self.stage {
            Stage::Busy => self.workload.delay(self.options.think),
            _ => self.workload.below(self.options.think),
        };
        self.after(wait + 1, Event::Act(client));
        let Some(link) = self.clients[client].link else { return self.connect(client) };
        let state = &self.links[link.0];
        if !state.live || state.doomed {
            if self.now > state.opened_at + CONNECT_TIMEOUT {
                self.cut(client, false);
            }
        } else if self.stage == Stage::Busy {
            self.act_busy(client, link);
        } else if !self.clients[client].last_words {
            self.ask_some(client, link);
        } else if state.sent.is_empty() {
            self.ask(link, Request::Ping);
        }
    }

    fn act_busy(&mut self, client: usize, link: LinkId) {
        if self.clients[client].silent_until > self.now {
            return;
        }
        let options = &self.options;
        let mut drawn = self.workload.below(1000);
        let mut falls_on = |share: u64| {
            let hit = drawn < share;
            drawn = if hit { u64::MAX } else { drawn.saturating_sub(share) };
            hit
        };
        if falls_on(options.cut_share) {
            let silently = self.workload.per_mille(300);
            self.cut(client, silently);
        } else if falls_on(options.garbage_share) {
            self.garbage(client, link);
        } else if falls_on(options.stall_share) {
            self.clients[client].reads_not = true;
            let wait = self.workload.below(1_000_000);
            self.after(wait, Event::ReadAgain(client));
        } else if falls_on(options.silence_share) {
            let time = self.workload.below(4_000_000);
            self.clients[client].silent_until = self.now + time;
        } else if falls_on(options.close_share) {
            self.ask(link, Request::Close);
            self.links[link.0].doomed = true;
        } else {
            self.ask_some(client, link);
        }
    }

    fn ask_some(&mut self, client: usize, link: LinkId) {
        let room = self.options.depth_max.saturating_sub(self.links[link.0].sent.len());
        if room == 0 {
            return;
        }
        let read_share = self.options.read_share;
        for _ in 0..=self.workload.index(room) {
            let wish = self.clients[client].operator.then(|| self.list_wish()).flatten();
            let request = match wish {
                Some(change) => Request::Reconfig(change),
                None => self.clients[client].workload.request(&mut self.workload, read_share),
            };
            // The model counts at once, whatever there is or was.
            let is_at_once = !request.makes_usage() || self.check.model.tree.is_counted_at_once();
            self.ask(link, if is_at_once { request } else { Request::Ping });
        }
    }

    // ----- connections -----

    fn connect(&mut self, client: usize) {
        let link = LinkId(self.links.len());
        let shard = self.schedule.index(usize::from(self.options.shards));
        // One address of several, whichever comes.
        let servers = self.nodes.len();
        let mut server = if servers > 1 { self.schedule.index(servers) } else { 0 };
        if self.has_list() && self.schedule.per_mille(850) {
            // It has read the list.
            let listed: Vec<usize> = (0..servers).filter(|at| self.is_listed(*at)).collect();
            server = self.schedule.pick(&listed);
        }
        let window = self.workload.pick(&[200, 4_000, 60_000]);
        let wrong_password =
            self.clients[client].session != 0 && self.stage == Stage::Busy && self.workload.per_mille(20);
        self.links.push(Link { client, server, shard, window, opened_at: self.now, wrong_password, ..Link::default() });
        self.clients[client].link = Some(link);
        self.send_over_network(Channel::ToServer(link), Event::Arrive(link));
        self.check.opened(link, &address(client).to_string());
        if self.stage == Stage::Busy && self.workload.per_mille(self.options.garbage_share) {
            self.links[link.0].doomed = true;
            self.transmit(link, b"GET / HTTP/1.1\r\n\r\n".to_vec());
            return;
        }
        self.greet(client, link, wrong_password);
    }

    fn greet(&mut self, client: usize, link: LinkId, wrong: bool) {
        let Client { session, password, timeout_ms, last_zxid, .. } = self.clients[client];
        let password = if wrong { [7; 16] } else { password };
        let tick = i32::try_from(self.options.session_tick_ms).expect("a small number");
        self.check.connecting(link, session, timeout_ms.clamp(tick * 2, tick * 20), password);
        let read_only = self.workload.per_mille(800).then_some(false);
        let bytes = request::connect((session, password), last_zxid, timeout_ms, read_only);
        self.note(format_args!("client {client} connects as link {} for session {session:#x}", link.0));
        self.transmit(link, bytes);
        for credentials in self.clients[client].auths.clone() {
            self.ask(link, Request::Auth { credentials });
        }
    }

    /// The client leaves its connection; silently when the server is not to hear of it.
    pub(crate) fn cut(&mut self, client: usize, silently: bool) {
        let Some(link) = self.clients[client].link.take() else { return };
        self.counts.cuts += 1;
        self.note(format_args!("client {client} leaves link {}", link.0));
        self.links[link.0].client_gone = true;
        self.links[link.0].held.clear();
        if !silently {
            self.send_over_network(Channel::ToServer(link), Event::EndToServer(link));
        }
    }

    pub(crate) fn end_at_client(&mut self, link: LinkId) {
        let client = self.links[link.0].client;
        self.links[link.0].client_gone = true;
        if self.clients[client].link == Some(link) {
            self.note(format_args!("link {} ends", link.0));
            self.clients[client].link = None;
            self.clients[client].reads_not = false;
        }
    }

    fn garbage(&mut self, client: usize, link: LinkId) {
        let kind = self.workload.below(4);
        self.links[link.0].doomed |= kind < 2;
        match kind {
            0 => {
                let word: [u8; 4] = self.workload.pick(&[[0xff, 0xff, 0xff, 0xf0], [0x7f, 0xff, 0xff, 0xff]]);
                self.transmit(link, word.to_vec());
            }
            1 => self.transmit(link, vec![0, 0, 0, 3, 1, 2, 3]),
            2 => {
                self.transmit(link, vec![0, 0, 0, 99, 1, 2, 3]);
                self.cut(client, false);
            }
            _ => {
                let request = Workload::refused(&mut self.workload);
                self.links[link.0].doomed = matches!(request, Request::Unknown(_));
                self.ask(link, request);
            }
        }
    }

    fn ask(&mut self, link: LinkId, request: Request) {
        let client = self.links[link.0].client;
        let xid = match request {
            Request::Ping => -2,
            Request::Auth { .. } => -4,
            Request::SetWatches { .. } => -8,
            _ => {
                self.clients[client].xid += 1;
                self.clients[client].xid
            }
        };
        self.counts.operations += 1;
        if self.clients[client].operator && matches!(request, Request::Reconfig(_)) {
            self.list_asked = Some(self.now);
        }
        self.note(format_args!("link {} asks {xid} {request:?}", link.0));
        let bytes = request.encode(xid);
        let (command, acked_before) = self.check.asked(link, &request);
        if matches!(request, Request::Auth { .. }) {
            self.links[link.0].auths_due += 1;
        } else {
            self.links[link.0].sent.push_back(Sent { xid, request, command, acked_before });
        }
        self.transmit(link, bytes);
    }

    // ----- replies and events -----

    pub(crate) fn at_client(&mut self, link: LinkId, bytes: &[u8]) -> Checked {
        let client = self.links[link.0].client;
        if self.links[link.0].client_gone {
            return Ok(());
        }
        self.links[link.0].held.extend_from_slice(bytes);
        if self.clients[client].reads_not { Ok(()) } else { self.read(link) }
    }

    pub(crate) fn read_again(&mut self, client: usize) -> Checked {
        self.clients[client].reads_not = false;
        self.clients[client].link.map_or(Ok(()), |link| self.read(link))
    }

    fn read(&mut self, link: LinkId) -> Checked {
        let held = std::mem::take(&mut self.links[link.0].held);
        let state = &mut self.links[link.0];
        state.in_flight -= held.len();
        if state.writing {
            let wait = self.schedule.delay(self.options.network_delay);
            self.after(wait, Event::Writable(link));
        }
        let mut input = std::mem::take(&mut self.links[link.0].input);
        input.extend_from_slice(&held);
        let mut used = 0;
        while !self.links[link.0].client_gone {
            let found = next_frame(&input[used..], REPLY_BYTES_MAX);
            let found = found.map_err(|error| Violation::of("replies", error.to_string()))?;
            let Some((frame, length)) = found else { break };
            self.frame(link, frame)?;
            used += length;
        }
        input.drain(..used);
        self.links[link.0].input = input;
        Ok(())
    }

    fn frame(&mut self, link: LinkId, frame: &[u8]) -> Checked {
        if !self.links[link.0].live {
            return self.connected(link, frame);
        }
        let mut reader = Reader::new(frame);
        let bad = |_| Violation::of("replies", format!("undecodable reply {frame:x?}"));
        let header = ReplyHeader::decode(&mut reader).map_err(bad)?;
        if header.xid == -1 {
            let event = WatcherEvent::decode(&mut reader).map_err(bad)?;
            if self.bug(Bug::DropEvent, 100) {
                return Ok(());
            }
            let path = event.path.unwrap_or_default();
            if self.bug(Bug::DoubleEvent, 100) {
                self.event(link, header.zxid, event.event_type, path)?;
            }
            return self.event(link, header.zxid, event.event_type, path);
        }
        if header.xid == -4 {
            let due = self.links[link.0].auths_due.checked_sub(1);
            self.links[link.0].auths_due = due.ok_or_else(|| Violation::of("replies", "an auth reply too many"))?;
            let ReplyHeader { zxid, err, .. } = header;
            return require(zxid == 0 && err == 0, "replies", || format!("auth: zxid {zxid:#x}, err {err}"));
        }
        if self.bug(Bug::LoseReply, 20) {
            return Ok(());
        }
        self.reply(link, header, &mut reader)
    }

    fn connected(&mut self, link: LinkId, frame: &[u8]) -> Checked {
        let client = self.links[link.0].client;
        let bad = |_| Violation::of("replies", "undecodable connect response");
        let response = ConnectResponse::decode(&mut Reader::new(frame)).map_err(bad)?;
        let password: [u8; 16] = response.passwd.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
        self.note(format_args!("link {} has session {:#x}", link.0, response.session_id));
        self.check.connected(link, response.session_id, response.timeout_ms, password)?;
        if response.timeout_ms == 0 {
            if !self.links[link.0].wrong_password {
                self.clients[client].forget_session();
            }
            self.links[link.0].doomed = true;
            return Ok(());
        }
        self.counts.sessions += u64::from(self.clients[client].session == 0);
        self.links[link.0].live = true;
        self.clients[client].session = response.session_id;
        self.clients[client].password = password;
        match self.clients[client].watches_again() {
            Some(request) if self.workload.per_mille(850) => self.ask(link, request),
            _ => self.clients[client].watches = WatchLists::default(),
        }
        Ok(())
    }

    fn event(&mut self, link: LinkId, zxid: i64, kind: i32, path: &str) -> Checked {
        self.counts.events += 1;
        self.note(format_args!("link {} hears {kind} {path} at {zxid:#x}", link.0));
        let client = &mut self.clients[self.links[link.0].client];
        // An event ends a watch that fires once.
        if kind != CHILDREN_CHANGED {
            client.watches.data.remove(path);
        }
        if kind == CHILDREN_CHANGED || kind == DELETED {
            client.watches.child.remove(path);
        }
        client.last_zxid = client.last_zxid.max(zxid);
        self.check.event(link, zxid, kind, path)
    }

    fn reply(&mut self, link: LinkId, header: ReplyHeader, reader: &mut Reader<'_>) -> Checked {
        let client = self.links[link.0].client;
        let sent = self.links[link.0].sent.pop_front();
        let sent = sent.ok_or_else(|| Violation::of("replies", format!("a reply too many: xid {}", header.xid)))?;
        let ReplyHeader { xid, mut zxid, err } = header;
        require(xid == sent.xid, "replies", || format!("xid {xid} where {} was due", sent.xid))?;
        let body = if err == 0 { sent.request.decode(reader) } else { Ok(Body::Nothing) };
        let mut body = body.map_err(|error| Violation::of("replies", format!("{:?}: {error}", sent.request)))?;
        self.note(format_args!("link {} gets {xid} zxid {zxid:#x} err {err} {body:?}", link.0));
        self.counts.replies += 1;
        if err == THROTTLED && sent.command.is_none() {
            // A read is refused only in two cases. It is in front of a write, and cannot wait until its client has
            // read. Or it is larger than a client may hold, as a list of ephemerals becomes here.
            let behind = self.links[link.0].sent.iter().any(|sent| sent.request.is_write());
            let large = matches!(sent.request, Request::Ephemerals { .. });
            return require(behind || large, "replies", || format!("{:?} is throttled at {zxid:#x}", sent.request));
        }
        self.maim(link, &sent, &mut zxid, &mut body);
        self.check.replied(link, &sent, zxid, err, &body)?;
        let state = &mut self.clients[client];
        state.last_zxid = state.last_zxid.max(zxid);
        state.healthy_replies += u64::from(self.stage == Stage::Healing);
        state.last_words_answered |= state.last_words && sent.request == Request::Ping;
        if let Some((kind, path)) = sent.request.watch_set(err) {
            state.watches.of_kind(kind).into_iter().for_each(|list| _ = list.insert(path.to_owned()));
            if kind == WatchKind::Data {
                _ = if err == 0 { state.existed.insert(path.to_owned()) } else { state.existed.remove(path) };
            }
        }
        match sent.request {
            Request::Close => state.forget_session(),
            Request::RemoveWatches { path, kind } if err == 0 => {
                state.watches.of_kind(kind).into_iter().for_each(|list| _ = list.remove(&path));
            }
            _ => {}
        }
        Ok(())
    }

    fn maim(&mut self, link: LinkId, sent: &Sent, zxid: &mut i64, body: &mut Body) {
        if let Body::Stat(stat) | Body::Data(_, stat) = body
            && self.bug(Bug::WrongStat, 50)
        {
            stat.version += 1;
        }
        let early = !sent.request.is_write() && self.check.is_behind_a_write(link, *zxid);
        if early && self.bug(Bug::EarlyRead, 200) {
            *zxid -= 1;
        }
    }

    /// The client's bytes go on their way, perhaps in pieces.
    pub(crate) fn transmit(&mut self, link: LinkId, mut bytes: Vec<u8>) {
        while !bytes.is_empty() {
            let split = self.schedule.per_mille(150);
            let count = if split { self.schedule.index(bytes.len()) + 1 } else { bytes.len() };
            let rest = bytes.split_off(count);
            self.send_over_network(Channel::ToServer(link), Event::ToServer(link, bytes));
            bytes = rest;
        }
    }
}
