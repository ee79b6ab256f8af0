//! Drives the clients: each keeps one session, over as many connections as it takes, and sends real bytes.

use corral_wire::Reader;
use corral_wire::frame::next_frame;
use corral_wire::records::{ConnectResponse, ReplyHeader, WatcherEvent};

use crate::check::{replies, sessions, watches};
use crate::limits::REPLY_BYTES_MAX;
use crate::link::{Link, Sent, address};
use crate::model::{CHILDREN_CHANGED, DELETED, LinkId};
use crate::options::Bug;
use crate::request::{self, Body, Request, WatchKind, WatchLists};
use crate::server::list;
use crate::violation::{Checked, Violation, require};
use crate::workload::Workload;
use crate::world::client::Client;
use crate::world::event::{Channel, Event};
use crate::world::{Stage, World};

/// How long a client waits for an answer to its connect request, or for the end of a doomed connection.
const CONNECT_TIMEOUT: u64 = 3_000_000;
const THROTTLED: i32 = -127;

pub(crate) fn act(world: &mut World, client: usize) {
    if world.stage == Stage::Fading {
        return;
    }
    let wait = match world.stage {
        Stage::Busy => world.workload.delay(world.options.think),
        // It only keeps its session.
        _ if world.clients[client].last_words_answered => world.workload.below(world.options.session_tick_ms * 500),
        _ => world.workload.below(world.options.think),
    };
    world.after(wait + 1, Event::Act(client));
    let Some(link) = world.clients[client].link else { return connect(world, client) };
    let state = &world.links[link.0];
    if !state.live || state.doomed {
        if world.now > state.opened_at + CONNECT_TIMEOUT {
            cut(world, client, false);
        }
    } else if world.stage == Stage::Busy {
        act_busy(world, client, link);
    } else if !world.clients[client].last_words {
        ask_some(world, client, link);
    } else if state.sent.is_empty() {
        ask(world, link, Request::Ping);
    }
}

fn act_busy(world: &mut World, client: usize, link: LinkId) {
    if world.clients[client].silent_until > world.now {
        return;
    }
    let options = &world.options;
    let mut drawn = world.workload.below(1000);
    let mut falls_on = |share: u64| {
        let hit = drawn < share;
        drawn = if hit { u64::MAX } else { drawn.saturating_sub(share) };
        hit
    };
    if falls_on(options.cut_share) {
        let silently = world.workload.per_mille(300);
        cut(world, client, silently);
    } else if falls_on(options.garbage_share) {
        garbage(world, client, link);
    } else if falls_on(options.stall_share) {
        world.clients[client].reads_not = true;
        let wait = world.workload.below(1_000_000);
        world.after(wait, Event::ReadAgain(client));
    } else if falls_on(options.silence_share) {
        let time = world.workload.below(4_000_000);
        world.clients[client].silent_until = world.now + time;
    } else if falls_on(options.close_share) {
        ask(world, link, Request::Close);
        world.links[link.0].doomed = true;
    } else {
        ask_some(world, client, link);
    }
}

fn ask_some(world: &mut World, client: usize, link: LinkId) {
    let room = world.options.depth_max.saturating_sub(world.links[link.0].sent.len());
    if room == 0 {
        return;
    }
    let (read_share, peer_port) = (world.options.read_share, list::peer_port(world, 1));
    for _ in 0..=world.workload.index(room) {
        let wish = world.clients[client].operator.then(|| list::wish(world)).flatten();
        let request = match wish {
            Some(change) => Request::Reconfig(change),
            None => world.clients[client].workload.request(&mut world.workload, read_share, peer_port),
        };
        // The model counts at once, whatever there is or was.
        let is_at_once = !request.makes_usage() || world.check.model.tree.is_counted_at_once();
        ask(world, link, if is_at_once { request } else { Request::Ping });
    }
}

// ----- connections -----

fn connect(world: &mut World, client: usize) {
    let link = LinkId(world.links.len());
    let shard = world.schedule.index(usize::from(world.options.shards));
    // One address of several, whichever comes.
    let servers = world.nodes.len();
    let mut server = if servers > 1 { world.schedule.index(servers) } else { 0 };
    if world.options.has_list() && world.schedule.per_mille(850) {
        // It has read the list.
        let listed: Vec<usize> = (0..servers).filter(|at| list::is_listed(world, *at)).collect();
        server = world.schedule.pick(&listed);
    }
    let window = world.workload.pick(&[200, 4_000, 60_000]);
    let wrong_password =
        world.clients[client].session != 0 && world.stage == Stage::Busy && world.workload.per_mille(20);
    world.links.push(Link { client, server, shard, window, opened_at: world.now, wrong_password, ..Link::default() });
    world.clients[client].link = Some(link);
    world.send_over_network(Channel::ToServer(link), Event::Arrive(link));
    world.check.opened(link, &address(client).to_string());
    if world.stage == Stage::Busy && world.workload.per_mille(world.options.garbage_share) {
        world.links[link.0].doomed = true;
        transmit(world, link, b"GET / HTTP/1.1\r\n\r\n".to_vec());
        return;
    }
    greet(world, client, link, wrong_password);
}

fn greet(world: &mut World, client: usize, link: LinkId, wrong: bool) {
    let Client { session, password, timeout_ms, last_zxid, .. } = world.clients[client];
    let password = if wrong { [7; 16] } else { password };
    let tick = i32::try_from(world.options.session_tick_ms).expect("a small number");
    world.check.connecting(link, session, timeout_ms.clamp(tick * 2, tick * 20), password);
    let read_only = world.workload.per_mille(800).then_some(false);
    let bytes = request::connect((session, password), last_zxid, timeout_ms, read_only);
    world.note(format_args!("client {client} connects as link {} for session {session:#x}", link.0));
    transmit(world, link, bytes);
    for credentials in world.clients[client].auths.clone() {
        ask(world, link, Request::Auth { credentials });
    }
}

/// The client leaves its connection; silently when the server is not to hear of it.
pub(crate) fn cut(world: &mut World, client: usize, silently: bool) {
    let Some(link) = world.clients[client].link.take() else { return };
    world.counts.cuts += 1;
    world.note(format_args!("client {client} leaves link {}", link.0));
    world.links[link.0].client_gone = true;
    world.links[link.0].held.clear();
    if !silently {
        world.send_over_network(Channel::ToServer(link), Event::EndToServer(link));
    }
}

pub(crate) fn end_at_client(world: &mut World, link: LinkId) {
    let client = world.links[link.0].client;
    world.links[link.0].client_gone = true;
    if world.clients[client].link == Some(link) {
        world.note(format_args!("link {} ends", link.0));
        world.clients[client].link = None;
        world.clients[client].reads_not = false;
    }
}

fn garbage(world: &mut World, client: usize, link: LinkId) {
    let kind = world.workload.below(4);
    world.links[link.0].doomed |= kind < 2;
    match kind {
        0 => {
            let word: [u8; 4] = world.workload.pick(&[[0xff, 0xff, 0xff, 0xf0], [0x7f, 0xff, 0xff, 0xff]]);
            transmit(world, link, word.to_vec());
        }
        1 => transmit(world, link, vec![0, 0, 0, 3, 1, 2, 3]),
        2 => {
            transmit(world, link, vec![0, 0, 0, 99, 1, 2, 3]);
            cut(world, client, false);
        }
        _ => {
            let request = Workload::refused(&mut world.workload);
            world.links[link.0].doomed = matches!(request, Request::Unknown(_));
            // Its entry could be taken for that of an earlier write, if a shard refused that one and its ACLs fit no entry.
            let is_ambiguous = world.options.has_scarcity && request.is_write();
            ask(world, link, if is_ambiguous { Request::Ping } else { request });
        }
    }
}

fn ask(world: &mut World, link: LinkId, request: Request) {
    let client = world.links[link.0].client;
    let xid = match request {
        Request::Ping => -2,
        Request::Auth { .. } => -4,
        Request::SetWatches { .. } => -8,
        _ => {
            world.clients[client].xid += 1;
            world.clients[client].xid
        }
    };
    world.counts.operations += 1;
    if world.clients[client].operator && matches!(request, Request::Reconfig(_)) {
        world.list_asked = Some(world.now);
    }
    world.note(format_args!("link {} asks {xid} {request:?}", link.0));
    let bytes = request.encode(xid);
    let (command, acked_before) = world.check.asked(link, &request);
    if matches!(request, Request::Auth { .. }) {
        world.links[link.0].auths_due += 1;
    } else {
        world.links[link.0].sent.push_back(Sent { xid, request, command, acked_before });
    }
    transmit(world, link, bytes);
}

// ----- replies and events -----

pub(crate) fn at_client(world: &mut World, link: LinkId, bytes: &[u8]) -> Checked {
    let client = world.links[link.0].client;
    if world.links[link.0].client_gone {
        return Ok(());
    }
    world.links[link.0].held.extend_from_slice(bytes);
    if world.clients[client].reads_not { Ok(()) } else { read(world, link) }
}

pub(crate) fn read_again(world: &mut World, client: usize) -> Checked {
    world.clients[client].reads_not = false;
    world.clients[client].link.map_or(Ok(()), |link| read(world, link))
}

fn read(world: &mut World, link: LinkId) -> Checked {
    let held = std::mem::take(&mut world.links[link.0].held);
    let state = &mut world.links[link.0];
    state.in_flight -= held.len();
    if state.writing {
        let wait = world.schedule.delay(world.options.network_delay);
        world.after(wait, Event::Writable(link));
    }
    let mut input = std::mem::take(&mut world.links[link.0].input);
    input.extend_from_slice(&held);
    let mut used = 0;
    while !world.links[link.0].client_gone {
        let found = next_frame(&input[used..], REPLY_BYTES_MAX);
        let found = found.map_err(|error| Violation::of("replies", error.to_string()))?;
        let Some((frame, length)) = found else { break };
        take_frame(world, link, frame)?;
        used += length;
    }
    input.drain(..used);
    world.links[link.0].input = input;
    Ok(())
}

fn take_frame(world: &mut World, link: LinkId, frame: &[u8]) -> Checked {
    if !world.links[link.0].live {
        return connected(world, link, frame);
    }
    let mut reader = Reader::new(frame);
    let bad = |_| Violation::of("replies", format!("undecodable reply {frame:x?}"));
    let header = ReplyHeader::decode(&mut reader).map_err(bad)?;
    if header.xid == -1 {
        let event = WatcherEvent::decode(&mut reader).map_err(bad)?;
        if world.bug(Bug::DropEvent, 100) {
            return Ok(());
        }
        let path = event.path.unwrap_or_default();
        if world.bug(Bug::DoubleEvent, 100) {
            take_event(world, link, header.zxid, event.event_type, path)?;
        }
        return take_event(world, link, header.zxid, event.event_type, path);
    }
    if header.xid == -4 {
        let due = world.links[link.0].auths_due.checked_sub(1);
        world.links[link.0].auths_due = due.ok_or_else(|| Violation::of("replies", "an auth reply too many"))?;
        let ReplyHeader { zxid, err, .. } = header;
        return require(zxid == 0 && err == 0, "replies", || format!("auth: zxid {zxid:#x}, err {err}"));
    }
    if world.bug(Bug::LoseReply, 20) {
        return Ok(());
    }
    take_reply(world, link, header, &mut reader)
}

fn connected(world: &mut World, link: LinkId, frame: &[u8]) -> Checked {
    let client = world.links[link.0].client;
    let bad = |_| Violation::of("replies", "undecodable connect response");
    let response = ConnectResponse::decode(&mut Reader::new(frame)).map_err(bad)?;
    let password: [u8; 16] = response.passwd.and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    world.note(format_args!("link {} has session {:#x}", link.0, response.session_id));
    sessions::connected(&mut world.check, link, response.session_id, response.timeout_ms, password)?;
    if response.timeout_ms == 0 {
        if !world.links[link.0].wrong_password {
            world.clients[client].forget_session();
        }
        world.links[link.0].doomed = true;
        return Ok(());
    }
    world.counts.sessions += u64::from(world.clients[client].session == 0);
    world.links[link.0].live = true;
    world.clients[client].session = response.session_id;
    world.clients[client].password = password;
    match world.clients[client].watches_again() {
        Some(request) if world.workload.per_mille(850) => ask(world, link, request),
        _ => world.clients[client].watches = WatchLists::default(),
    }
    Ok(())
}

fn take_event(world: &mut World, link: LinkId, zxid: i64, kind: i32, path: &str) -> Checked {
    world.counts.events += 1;
    world.note(format_args!("link {} hears {kind} {path} at {zxid:#x}", link.0));
    let client = &mut world.clients[world.links[link.0].client];
    // An event ends a watch that fires once.
    if kind != CHILDREN_CHANGED {
        client.watches.data.remove(path);
    }
    if kind == CHILDREN_CHANGED || kind == DELETED {
        client.watches.child.remove(path);
    }
    client.last_zxid = client.last_zxid.max(zxid);
    watches::event(&mut world.check, link, zxid, kind, path)
}

fn take_reply(world: &mut World, link: LinkId, header: ReplyHeader, reader: &mut Reader<'_>) -> Checked {
    let client = world.links[link.0].client;
    let sent = world.links[link.0].sent.pop_front();
    let sent = sent.ok_or_else(|| Violation::of("replies", format!("a reply too many: xid {}", header.xid)))?;
    let ReplyHeader { xid, mut zxid, err } = header;
    require(xid == sent.xid, "replies", || format!("xid {xid} where {} was due", sent.xid))?;
    let body = if err == 0 { sent.request.decode(reader) } else { Ok(Body::Nothing) };
    let mut body = body.map_err(|error| Violation::of("replies", format!("{:?}: {error}", sent.request)))?;
    world.note(format_args!("link {} gets {xid} zxid {zxid:#x} err {err} {body:?}", link.0));
    world.counts.replies += 1;
    if err == THROTTLED && sent.command.is_none() {
        // A read is refused only in two cases. It is in front of a write, and cannot wait until its client has
        // read. Or it is larger than a client may hold, as a list of ephemerals becomes here.
        let behind = world.links[link.0].sent.iter().any(|sent| sent.request.is_write());
        let large = matches!(sent.request, Request::Ephemerals { .. });
        return require(behind || large, "replies", || format!("{:?} is throttled at {zxid:#x}", sent.request));
    }
    maim(world, link, &sent, &mut zxid, &mut body);
    replies::replied(&mut world.check, link, &sent, zxid, err, &body)?;
    let state = &mut world.clients[client];
    state.last_zxid = state.last_zxid.max(zxid);
    state.healthy_replies += u64::from(world.stage == Stage::Healing);
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

fn maim(world: &mut World, link: LinkId, sent: &Sent, zxid: &mut i64, body: &mut Body) {
    if let Body::Stat(stat) | Body::Data(_, stat) = body
        && world.bug(Bug::WrongStat, 50)
    {
        stat.version += 1;
    }
    let early = !sent.request.is_write() && world.check.is_behind_a_write(link, *zxid);
    if early && world.bug(Bug::EarlyRead, 200) {
        *zxid -= 1;
    }
}

/// The client's bytes go on their way, perhaps in pieces.
fn transmit(world: &mut World, link: LinkId, mut bytes: Vec<u8>) {
    while !bytes.is_empty() {
        let split = world.schedule.per_mille(150);
        let count = if split { world.schedule.index(bytes.len()) + 1 } else { bytes.len() };
        let rest = bytes.split_off(count);
        world.send_over_network(Channel::ToServer(link), Event::ToServer(link, bytes));
        bytes = rest;
    }
}
