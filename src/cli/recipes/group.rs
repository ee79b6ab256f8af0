//! `corral group`: the members that are there, each with an ephemeral znode.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};
use corral_client::{CreateMode, Error, ErrorCode, Write, watcher};
use corral_core::path;
use serde_json::json;
use tokio::sync::Notify;

use crate::cli::client::{Connection, failed};
use crate::cli::output::{in_session_runtime, note, plain, print};
use crate::cli::recipes::child::{Child, OnLost};
use crate::cli::recipes::examples::{GROUP_JOIN, GROUP_LIST, GROUP_WATCH};
use crate::cli::recipes::item::write;
use crate::cli::recipes::session::{
    self, Current, Session, check, creation, interruptible, is_of_connection, own_id, renewed, run_on, unique,
    until_stopped,
};
use crate::cli::signals::Stops;
use crate::exit::{ExitCode, Fault};

/// Requests for members that are sent at once.
const IN_FLIGHT_MAX: usize = 256;
/// How kazoo's names end.
const PARTY: &str = "__party__";

/// Sub-commands of `corral group`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Be a member while the command runs, or until a signal comes
    #[command(after_help = GROUP_JOIN)]
    Join(Join),
    /// Print the members
    #[command(after_help = GROUP_LIST)]
    List(Group),
    /// Print the members, and a line for each that joins or leaves
    #[command(after_help = GROUP_WATCH)]
    Watch(Group),
}

/// A group to look at.
#[derive(Args)]
pub(crate) struct Group {
    #[command(flatten)]
    connection: Connection,
    /// The group
    path: String,
    /// Print JSON lines instead of text
    #[arg(long)]
    json: bool,
}

/// Arguments of `corral group join`.
#[derive(Args)]
pub(crate) struct Join {
    #[command(flatten)]
    connection: Connection,
    /// The group
    path: String,
    /// Name of the member [default: HOST:PID]
    #[arg(long, value_name = "TEXT")]
    id: Option<String>,
    /// Data for others
    #[arg(long, value_name = "TEXT", default_value = "")]
    data: String,
    /// The znodes to use
    #[arg(long, value_enum, default_value_t = Layout::Curator)]
    layout: Layout,
    /// The command to run as a member
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

/// Names and data of the znodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Layout {
    /// Those of Curator's GroupMember, named as the members
    Curator,
    /// Those of kazoo's Party, which have the names as data
    Kazoo,
}

/// Runs the sub-command.
///
/// # Errors
/// If the servers cannot be asked.
pub(crate) fn run(command: &Command) -> Result<u8, Fault> {
    match command {
        Command::Join(arguments) => join(arguments),
        Command::List(Group { connection, path, json }) => {
            session::run(connection, None, path, async |session, stops| {
                let members = session.within(stops, members(session, path)).await?;
                let mut members: Vec<&Member> = members.values().collect();
                members.sort_by(|one, other| one.id.cmp(&other.id));
                members.into_iter().try_for_each(|member| print(&member.line(*json)))?;
                Ok(ExitCode::Ok.number())
            })
        }
        Command::Watch(group) => watch(group),
    }
}

struct Member {
    id: String,
    data: String,
    session: i64,
    /// The zxid that created the znode.
    joined: i64,
}

impl Member {
    fn line(&self, as_json: bool) -> String {
        let Member { id, data, session, .. } = self;
        match (as_json, data.as_str()) {
            (true, _) => format!("{}\n", json!({"id": id, "data": data, "session": format!("{session:#x}")})),
            (false, "") => format!("{}\n", plain(id)),
            (false, data) => format!("{} {}\n", plain(id), plain(data)),
        }
    }
}

type Members = BTreeMap<String, Member>;

/// By name of the znode. Members that leave meanwhile are left out.
async fn members(session: &Session, path: &str) -> Result<Members, Fault> {
    let names = session.children(path).await.map_err(|error| failed(path, &error))?;
    let mut members = BTreeMap::new();
    for names in names.chunks(IN_FLIGHT_MAX) {
        let asked = names.iter().map(|name| (name, path::child(path, name)));
        let asked: Vec<_> = asked.map(|(name, znode)| (name, session.client.get_data(&znode, None), znode)).collect();
        for (name, answer, znode) in asked {
            let found = match answer.await {
                Err(error) if is_of_connection(&error) => session.retry(|client| client.get_data(&znode, None)).await,
                found => found,
            };
            match found {
                Ok((data, stat)) => {
                    let data = String::from_utf8_lossy(&data.unwrap_or_default()).into_owned();
                    let (id, data) = if name.ends_with(PARTY) { (data, String::new()) } else { (name.clone(), data) };
                    let member = Member { id, data, session: stat.ephemeral_owner, joined: stat.czxid };
                    members.insert(name.clone(), member);
                }
                Err(Error { code: ErrorCode::NoNode, .. }) => {}
                Err(error) => return Err(failed(&znode, &error)),
            }
        }
    }
    Ok(members)
}

fn watch(group: &Group) -> Result<u8, Fault> {
    let Group { connection, path, json } = group;
    let line = |change: &str, member: &Member| {
        let text = member.line(*json);
        if *json { format!("{{\"event\":\"{change}\",{}", &text[1..]) } else { format!("{change} {text}") }
    };
    let is_in = |members: &Members, name: &str, member: &Member| {
        members.get(name).is_some_and(|other| other.joined == member.joined)
    };
    let mut known = Members::new();
    run_on(connection, path, async |session| {
        loop {
            let (watcher, mut events) = watcher();
            let listed = session.watched(path, &watcher, |client| client.get_children(path, Some(&watcher))).await;
            listed.map_err(|error| failed(path, &error))?;
            let now = members(session, path).await?;
            for (_, member) in known.iter().filter(|(name, member)| !is_in(&now, name, member)) {
                write(line("left", member).into_bytes()).await?;
            }
            for (_, member) in now.iter().filter(|(name, member)| !is_in(&known, name, member)) {
                write(line("joined", member).into_bytes()).await?;
            }
            known = now;
            events.next().await;
        }
    })
}

fn join(arguments: &Join) -> Result<u8, Fault> {
    let Join { connection, path, id, data, layout, command } = arguments;
    let id = id.clone().unwrap_or_else(own_id);
    let (name, data) = match layout {
        Layout::Curator => (id, data.clone()),
        Layout::Kazoo => (format!("{:032x}{PARTY}", unique()?), id),
    };
    let znode = path::child(path, &name);
    check(path)?;
    if name.contains('/') || check(&znode).is_err() {
        return Err(Fault::new(ExitCode::Usage, format!("--id {name:?} is no name of a znode")));
    }
    in_session_runtime(async {
        let (mut stops, current, joined) = (Stops::new()?, Current::default(), Notify::new());
        let done = {
            let membership = renewed(connection, &current, async |session| stay(session, &znode, &data, &joined).await);
            run_as_member(&mut stops, membership, &joined, path, &znode, command).await
        };
        current.close().await;
        done
    })
}

async fn run_as_member(
    stops: &mut Stops,
    membership: impl Future<Output = Result<(), Fault>>,
    joined: &Notify,
    path: &str,
    znode: &str,
    command: &[OsString],
) -> Result<u8, Fault> {
    let mut membership = std::pin::pin!(membership);
    if command.is_empty() {
        return until_stopped(stops, membership).await;
    }
    let begun = async {
        tokio::select! {
            result = &mut membership => result,
            () = joined.notified() => Ok(()),
        }
    };
    interruptible(stops, begun).await?;
    let mut child = Child::start(command, &[("CORRAL_PATH", path), ("CORRAL_ZNODE", znode)], None)?;
    let ended = async {
        match membership.await {
            Ok(()) => std::future::pending().await,
            Err(fault) => fault,
        }
    };
    child.run(stops, OnLost::Signal, ended).await
}

/// Is a member until the session is lost.
async fn stay(session: &Session, znode: &str, data: &str, joined: &Notify) -> Result<(), Fault> {
    let fault = |error: Error| failed(znode, &error);
    let create = Write::Create { path: znode, creation: creation(Some(data.as_bytes()), CreateMode::Ephemeral) };
    let is_own = async || {
        let own = session.retry(|client| client.get_ephemerals(znode)).await?;
        Ok(own.iter().any(|path| path == znode))
    };
    loop {
        match session.once(&[create], is_own).await {
            Ok(()) => joined.notify_one(),
            Err(Error { code: ErrorCode::NodeExists, .. }) => {
                if !is_own().await.map_err(fault)? {
                    note(&format!("{znode}: there is such a member; waiting until it leaves"));
                }
            }
            Err(Error { code: ErrorCode::NoNode, .. }) => {
                session.make(path::parent(znode)).await?;
                continue;
            }
            Err(error) => return Err(fault(error)),
        }
        session.change_of(znode).await?;
    }
}
