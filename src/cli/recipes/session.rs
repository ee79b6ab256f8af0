//! The session of a recipe: requests that outlive a connection, waits with a limit, and an end at signals.
//!
//! The main thread, in a runtime of tokio. It does not know the recipes.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use clap::Args;
use corral_client::{
    Acl, Client, CreateMode, Creation, Error, ErrorCode, Reply, Stat, Status, Watcher, Write, watcher,
};
use corral_core::path;
use futures_lite::FutureExt as _;
use nix::sys::signal::Signal;
use nix::unistd::gethostname;
use tokio::time::{Instant, timeout_at};

use crate::cli::client::{Connection, failed};
use crate::cli::output::{in_session_runtime, note};
use crate::cli::signals::Stops;
use crate::exit::{ExitCode, Fault};

/// Connections that a request may outlive, with pauses between them.
const ATTEMPTS_MAX: u32 = 12;
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A limit for waits.
#[derive(Args)]
pub(super) struct Limit {
    /// Wait for others at most as long, and then end with 19. 0 tries once. Also limits the wait for a server
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
}

/// Parses a duration.
///
/// # Errors
/// If the text is no number from 0 on.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give seconds, such as 30 or 0.5".to_owned())
}

/// An open session.
pub(super) struct Session {
    pub(super) client: Client,
    servers: String,
    deadline: Cell<Option<Instant>>,
}

/// Opens a session, gives it to `work`, and closes it.
///
/// # Errors
/// If a path or an option cannot be used, or no server answers within `limit`, or without it within the session timeout. If a signal comes before that,
/// or `work` fails.
pub(super) fn run<T>(
    connection: &Connection,
    limit: Option<Duration>,
    path: &str,
    work: impl AsyncFnOnce(&Session, &mut Stops) -> Result<T, Fault>,
) -> Result<T, Fault> {
    check(path)?;
    in_session_runtime(async {
        let mut stops = Stops::new()?;
        let session = interruptible(&mut stops, Session::open(connection, limit)).await?;
        let result = work(&session, &mut stops).await;
        session.client.close().await;
        result
    })
}

/// Runs `work` in one session after the other, until it or a signal ends that. Lost sessions are told of on standard error.
///
/// # Errors
/// As [`run`], but SIGTERM is a good end. After the first session servers are waited for without a limit.
pub(super) fn run_on(
    connection: &Connection,
    path: &str,
    work: impl AsyncFnMut(&Session) -> Result<(), Fault>,
) -> Result<u8, Fault> {
    check(path)?;
    in_session_runtime(async {
        let (mut stops, current) = (Stops::new()?, Current::default());
        let result = until_stopped(&mut stops, renewed(connection, &current, work)).await;
        current.close().await;
        result
    })
}

/// Does `work`, which SIGTERM may end.
///
/// # Errors
/// That of `work`, or if another signal comes.
pub(super) async fn until_stopped(
    stops: &mut Stops,
    work: impl Future<Output = Result<(), Fault>>,
) -> Result<u8, Fault> {
    tokio::select! {
        biased;
        result = work => result.map(|()| ExitCode::Ok.number()),
        signal = stops.next() => stopped(signal),
    }
}

/// The end by a signal of a command that runs until then. SIGTERM is a good end.
///
/// # Errors
/// At another signal.
pub(super) fn stopped(signal: Signal) -> Result<u8, Fault> {
    if signal == Signal::SIGTERM { Ok(ExitCode::Ok.number()) } else { Err(interrupted()) }
}

/// The client of the session that is open now.
#[derive(Default)]
pub(super) struct Current(RefCell<Option<Client>>);

impl Current {
    pub(super) async fn close(&self) {
        let client = self.0.take();
        if let Some(client) = client {
            client.close().await;
        }
    }
}

/// Runs `work` in one session after the other.
///
/// # Errors
/// That of `work`, or if the first session cannot be opened.
pub(super) async fn renewed(
    connection: &Connection,
    current: &Current,
    mut work: impl AsyncFnMut(&Session) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut session = Session::open(connection, None).await?;
    loop {
        current.0.replace(Some(session.client.clone()));
        match session.while_kept(work(&session)).await {
            Err(fault) if fault.code == ExitCode::SessionLost => note(&fault.sentence),
            result => return result,
        }
        current.close().await;
        session = Session::reopen(connection).await?;
    }
}

/// Does `work`, unless a signal comes.
pub(super) async fn interruptible<T>(
    stops: &mut Stops,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::select! {
        biased;
        result = work => result,
        _ = stops.next() => Err(interrupted()),
    }
}

fn interrupted() -> Fault {
    Fault::new(ExitCode::Interrupted, "interrupted")
}

/// Says in other words that the time of `--timeout` passed.
pub(super) fn late_as(words: String) -> impl FnOnce(Fault) -> Fault {
    move |fault| match fault.code {
        ExitCode::TimedOut => Fault { sentence: format!("{words}; the time given with --timeout passed"), ..fault },
        _ => fault,
    }
}

/// Whether a recipe can have this path.
///
/// # Errors
/// If it is no path, or the root.
pub(super) fn check(path: &str) -> Result<(), Fault> {
    if path::is_valid(path) && path != path::ROOT {
        return Ok(());
    }
    Err(Fault::new(
        ExitCode::Usage,
        format!("{path:?} is no path below the root; give one such as /app/lock, without a slash at its end"),
    ))
}

/// A name that no other process has. Its first digit is `f`, because Curator sorts foreign names by their text, and must put
/// them behind its own.
///
/// # Errors
/// Without random numbers.
pub(super) fn unique() -> Result<u128, Fault> {
    let mut bytes = [0; 16];
    let failed = |error| Fault::new(ExitCode::Internal, format!("no random numbers: {error}"));
    getrandom::fill(&mut bytes).map_err(failed)?;
    bytes[0] |= 0xf0;
    Ok(u128::from_be_bytes(bytes))
}

/// Names this process.
pub(super) fn own_id() -> String {
    let host = gethostname().ok().and_then(|name| name.into_string().ok());
    format!("{}:{}", host.unwrap_or_default(), std::process::id())
}

/// A znode to create, with all permissions for all clients, as Curator and kazoo create them.
pub(super) fn creation(data: Option<&[u8]>, mode: CreateMode) -> Creation<'_> {
    static OPEN: std::sync::LazyLock<[Acl; 1]> = std::sync::LazyLock::new(|| [Acl::open()]);
    Creation { data, acl: &*OPEN, mode, ttl_ms: 0 }
}

impl Session {
    async fn open(connection: &Connection, limit: Option<Duration>) -> Result<Session, Fault> {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let connector = connection.connector(connection.servers()?)?;
        let limit = limit.unwrap_or(connector.timeout);
        let client = Client::start(connector);
        if let Err(error) = client.connected().await {
            if error.code == ErrorCode::ConnectionLoss && !limit.is_zero() {
                note(&format!("{}: {error}; trying for {} s", connection.server(), limit.as_secs_f64()));
            }
            let mut status = client.status();
            let decided = status.wait_for(|status| !matches!(status, Status::Disconnected { .. }));
            let is_open = match tokio::time::timeout(limit, decided).await.as_ref().map(Result::as_deref) {
                Ok(Ok(Status::Ended(error))) => return Err(connection.unreachable(error)),
                Ok(Ok(_)) => true,
                Ok(Err(_)) | Err(_) => false,
            };
            if !is_open {
                return Err(connection.unreachable(&error));
            }
            note(&format!("{}: connected", connection.server()));
        }
        Ok(Session { client, servers: connection.server().to_owned(), deadline: Cell::new(deadline) })
    }

    async fn reopen(connection: &Connection) -> Result<Session, Fault> {
        loop {
            match Session::open(connection, None).await {
                Err(fault) if fault.code == ExitCode::SessionLost => {}
                result => return result,
            }
        }
    }

    /// Does `work`, unless a signal comes or the session is lost.
    pub(super) async fn within<T>(
        &self,
        stops: &mut Stops,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        interruptible(stops, self.while_kept(work)).await
    }

    /// Does `work`, unless the session is lost.
    pub(super) async fn while_kept<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        tokio::select! {
            biased;
            result = work => result,
            fault = self.lost() => Err(fault),
        }
    }

    async fn lost(&self) -> Fault {
        let error = self.client.lost().await;
        if error.code == ErrorCode::AuthFailed {
            let sentence = format!("{}: {error}; give --auth as SCHEME:CREDENTIALS", self.servers);
            return Fault::new(ExitCode::NotPermitted, sentence);
        }
        Fault::new(ExitCode::SessionLost, format!("{}: the session was lost: {error}", self.servers))
    }

    /// Waits are without a limit from here on.
    pub(super) fn lift_limit(&self) {
        self.deadline.set(None);
    }

    /// Waits for something that others do, at most until the time of `--timeout`.
    pub(super) async fn wait<T>(&self, path: &str, awaited: impl Future<Output = T>) -> Result<T, Fault> {
        let Some(deadline) = self.deadline.get() else { return Ok(awaited.await) };
        let late = |_| Fault::new(ExitCode::TimedOut, format!("{path}: the time given with --timeout passed"));
        timeout_at(deadline, awaited).await.map_err(late)
    }

    /// Sends a request until a connection lives long enough for its answer. It must do no harm when it is done twice.
    ///
    /// # Errors
    /// Of the server, or if the session has ended.
    pub(super) async fn retry<T>(&self, request: impl Fn(&Client) -> Reply<T>) -> Result<T, Error> {
        let mut attempts = 0;
        loop {
            match request(&self.client).await {
                Err(error) if is_of_connection(&error) => self.reconnected(error, &mut attempts).await?,
                result => return result,
            }
        }
    }

    /// Does all writes in one transaction, once. `is_done` looks whether that happened, after a connection was lost before
    /// the answer. Servers refuse what comes late from an old connection of a session.
    ///
    /// # Errors
    /// Of the first write that failed, or if the session has ended.
    pub(super) async fn once(
        &self,
        writes: &[Write<'_>],
        is_done: impl AsyncFn() -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut attempts = 0;
        loop {
            match self.client.multi(writes).await {
                Err(error) if is_of_connection(&error) => {
                    self.reconnected(error, &mut attempts).await?;
                    self.retry(|client| client.sync(path::ROOT)).await?;
                    if is_done().await? {
                        return Ok(());
                    }
                }
                // The number of the write says nothing to users.
                Err(error) if error.reason.parse::<usize>().is_ok() => return Err(error.code.into()),
                result => return result,
            }
        }
    }

    /// Waits for a connection, and longer each time. Gives the error back if servers close connections again and again, as
    /// they do when a request is too large.
    async fn reconnected(&self, error: Error, attempts: &mut u32) -> Result<(), Error> {
        *attempts += 1;
        if *attempts > ATTEMPTS_MAX {
            return Err(error);
        }
        tokio::time::sleep((PAUSE_MIN * 2_u32.pow(*attempts - 1)).min(PAUSE_MAX)).await;
        let mut status = self.client.status();
        match status.wait_for(|status| !matches!(status, Status::Disconnected { .. })).await.as_deref() {
            Ok(Status::Ended(error)) => Err(error.clone()),
            Ok(_) => Ok(()),
            Err(_) => Err(ErrorCode::Closing.into()),
        }
    }

    /// Whether a znode exists.
    ///
    /// # Errors
    /// Of the server, or if the session has ended.
    pub(super) async fn stat(&self, path: &str) -> Result<Option<Stat>, Error> {
        self.retry(|client| client.exists(path, None)).await
    }

    /// The names of the children, sorted. None if there is no such znode.
    ///
    /// # Errors
    /// Of the server, or if the session has ended.
    pub(super) async fn children(&self, path: &str) -> Result<Vec<String>, Error> {
        match self.retry(|client| client.get_children(path, None)).await {
            Ok((mut names, _)) => {
                names.sort_unstable();
                Ok(names)
            }
            Err(Error { code: ErrorCode::NoNode, .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The answer of a read request, or `None` if there is no such znode. Then the watcher is told of its creation.
    ///
    /// # Errors
    /// Of the server, or if the session has ended.
    pub(super) async fn watched<T>(
        &self,
        path: &str,
        watcher: &Watcher,
        request: impl Fn(&Client) -> Reply<T>,
    ) -> Result<Option<T>, Error> {
        loop {
            match self.retry(&request).await {
                Err(Error { code: ErrorCode::NoNode, .. }) => {
                    if self.retry(|client| client.exists(path, Some(watcher))).await?.is_none() {
                        return Ok(None);
                    }
                }
                result => return result.map(Some),
            }
        }
    }

    /// Deletes a znode, if it is there.
    ///
    /// # Errors
    /// Of the server, or if the session has ended.
    pub(super) async fn delete(&self, path: &str) -> Result<(), Error> {
        match self.retry(|client| client.delete(path, None)).await {
            Err(Error { code: ErrorCode::NoNode, .. }) => Ok(()),
            result => result,
        }
    }

    /// Creates the persistent znodes above a path, unless they exist.
    ///
    /// # Errors
    /// As those of [`Session::make`].
    pub(super) async fn make_parent(&self, path: &str) -> Result<(), Fault> {
        self.make_as(path::parent(path), CreateMode::Persistent).await
    }

    /// Creates a container, and persistent znodes above it, unless they exist. Without containers it is persistent, too.
    ///
    /// # Errors
    /// Of the server, or if the session has ended.
    pub(super) async fn make(&self, path: &str) -> Result<(), Fault> {
        self.make_as(path, CreateMode::Container).await
    }

    /// As [`Session::make`], with a last znode of this kind.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn make_as(&self, last: &str, mut kind: CreateMode) -> Result<(), Fault> {
        let mut missing = vec![last];
        while let Some(path) = missing.last().copied() {
            let mode = if path == last { kind } else { CreateMode::Persistent };
            if self.stat(path).await.map_err(|error| failed(path, &error))?.is_some() {
                missing.pop();
                continue;
            }
            if path == path::ROOT {
                // It is that of a chroot, which may be misspelt.
                return Err(failed(path, &ErrorCode::NoNode.into()));
            }
            match self.retry(|client| client.create(path, &creation(None, mode))).await {
                Ok(_) | Err(Error { code: ErrorCode::NodeExists, .. }) => drop(missing.pop()),
                Err(Error { code: ErrorCode::NoNode, .. }) if path::parent(path) != path::ROOT => {
                    missing.push(path::parent(path))
                }
                Err(Error { code: ErrorCode::Unimplemented, .. }) if mode.is_container() => {
                    kind = CreateMode::Persistent
                }
                Err(error) => return Err(failed(path, &error)),
            }
        }
        Ok(())
    }

    /// Waits for an event of a znode, if the znode exists.
    ///
    /// # Errors
    /// Of the server, if the session has ended, or if the time of `--timeout` passed.
    pub(super) async fn change_of(&self, znode: &str) -> Result<(), Fault> {
        let (watcher, mut events) = watcher();
        let stat = self.retry(|client| client.exists(znode, Some(&watcher))).await;
        if stat.map_err(|error| failed(znode, &error))?.is_some() {
            self.wait(znode, events.next()).await?;
        }
        Ok(())
    }

    /// Waits until a znode of this session does not exist, or the session is lost. Gives the reason.
    pub(super) async fn gone(&self, znode: &str) -> Fault {
        let vanished = async {
            loop {
                let (watcher, mut events) = watcher();
                match self.retry(|client| client.exists(znode, Some(&watcher))).await {
                    Ok(Some(_)) => drop(events.next().await),
                    Ok(None) => break Ok(deleted(znode)),
                    Err(error) => break Err(failed(znode, &error)),
                }
            }
        };
        self.while_kept(vanished).await.unwrap_or_else(|fault| fault)
    }

    /// As [`Session::gone`], for the first of several znodes.
    pub(super) async fn any_gone(&self, znodes: impl Iterator<Item = &str>) -> Fault {
        let waits = znodes.map(|znode| self.gone(znode).boxed_local());
        waits.reduce(|one, other| one.or(other).boxed_local()).expect("one znode at least").await
    }
}

/// The fault of an own znode that is gone.
pub(super) fn deleted(znode: &str) -> Fault {
    Fault::new(ExitCode::SessionLost, format!("{znode}: the znode was deleted"))
}

/// Whether the request may be done or not, and the session may go on.
pub(super) fn is_of_connection(error: &Error) -> bool {
    matches!(error.code, ErrorCode::ConnectionLoss | ErrorCode::SessionMoved)
}
