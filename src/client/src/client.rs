//! The requests of a session, each with its answer as a value.

use std::future::Future;
use std::pin::Pin;

use corral_core::path;
use corral_wire::consts::{AddWatchMode, CreateMode, VERSION_ANY, WatcherType};
use corral_wire::multi::{self, MultiOp, MultiResponse, MultiResult};
use corral_wire::records::{
    AddWatchRequest, CheckVersionRequest, Create2Response, CreateRequest, CreateTtlRequest, DeleteRequest,
    ExistsRequest, ExistsResponse, GetAclRequest, GetAclResponse, GetAllChildrenNumberRequest,
    GetAllChildrenNumberResponse, GetChildren2Request, GetChildren2Response, GetDataRequest, GetDataResponse,
    GetEphemeralsRequest, GetEphemeralsResponse, ReconfigRequest, RemoveWatchesRequest, SetAclRequest, SetAclResponse,
    SetDataRequest, SetDataResponse, Stat, SyncRequest, WhoAmIResponse,
};
use corral_wire::vector::VectorBuf;
use corral_wire::{DecodeError, ErrorCode, OpCode, Reader, Wire, Writer};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep_until;

use crate::address::Servers;
use crate::error::Error;
use crate::session::{self, After, Answer, Connector, Handle, Request, Status};
use crate::types::{Acl, Creation, Write, encoded};
use crate::watches::{Kind, Watcher};

/// The znode of the ensemble's members. It is outside of each chroot.
const CONFIG: &str = "/zookeeper/config";

/// The result of a request, once its answer has come.
pub type Reply<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// A session. Clones are the same session, which is closed when the last one is dropped.
///
/// A request is sent when its method is called, also if the future is polled later. Paths are below the chroot.
#[derive(Clone)]
pub struct Client {
    servers: Servers,
    session: Handle,
}

impl Client {
    /// Begins to connect. Requests wait for the connection, and fail if no server is reached. Needs a runtime of tokio.
    pub fn start(connector: Connector) -> Client {
        let servers = connector.servers.clone();
        Client { servers, session: session::begin(connector) }
    }

    /// Follows how the session stands.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.session.status.clone()
    }

    /// Waits until the session is over, or may be over for the servers. It may be if nothing sent in the last nine tenths of its
    /// timeout is answered. Gives the reason. Needs an open session.
    pub async fn lost(&self) -> Error {
        let (mut status, mut kept) = (self.status(), self.session.kept.clone());
        loop {
            if let Status::Ended(error) = &*status.borrow_and_update() {
                return error.clone();
            }
            let until = *kept.borrow_and_update();
            tokio::select! {
                changed = status.changed() => if changed.is_err() { return ErrorCode::Closing.into() },
                changed = kept.changed() => if changed.is_err() { return ErrorCode::Closing.into() },
                () = sleep_until(until) => {
                    return Error::new(ErrorCode::SessionExpired, "no server answered in time");
                }
            }
        }
    }

    /// The path below which all paths are.
    pub fn chroot(&self) -> &str {
        self.servers.chroot()
    }

    /// Waits until the session is open.
    ///
    /// # Errors
    /// If no server was reached at the first attempt with each, or the session cannot be opened.
    pub async fn connected(&self) -> Result<(), Error> {
        let mut status = self.status();
        let decided =
            status.wait_for(|status| !matches!(status, Status::Disconnected { reason, .. } if reason.is_empty()));
        match decided.await.as_deref() {
            Ok(Status::Connected { .. }) => Ok(()),
            Ok(Status::Disconnected { reason, .. }) => Err(Error::new(ErrorCode::ConnectionLoss, reason.clone())),
            Ok(Status::Ended(error)) => Err(error.clone()),
            Err(_) => Err(ErrorCode::Closing.into()),
        }
    }

    /// Closes the session, and waits for the server's answer at most two seconds.
    pub async fn close(self) {
        let mut status = self.status();
        // If that does not fit, the session is closed when this client is dropped.
        let _ = self.session.requests.try_send(Request::Close);
        drop(self);
        let _ = status.wait_for(|status| matches!(status, Status::Ended(_))).await;
    }

    /// Adds an identity to the session.
    ///
    /// # Errors
    /// `AuthFailed`, and then the session has ended.
    pub fn authenticate(&self, scheme: &str, credentials: Option<&[u8]>) -> Reply<()> {
        let (scheme, credentials) = (scheme.to_owned(), credentials.map(<[u8]>::to_vec));
        let answer = self.push(|answer| Request::Authenticate { scheme, credentials, answer });
        Box::pin(async { answer.answer().await.map(drop) })
    }

    /// Creates a znode. Gives its path, with the sequence number if it has one, and its Stat.
    pub fn create(&self, path: &str, creation: &Creation<'_>) -> Reply<(String, Stat)> {
        let Creation { data, acl, mode, ttl_ms } = *creation;
        let (acl, full, flags) = (encoded(acl), self.servers.full(path), mode.flag());
        let op = op_of(mode);
        let acl = acl.view().ok();
        let path = Some(&*full);
        let answer = match op {
            OpCode::CreateTtl => self.send(op, &CreateTtlRequest { path, data, acl, flags, ttl: ttl_ms }),
            _ => self.send(op, &CreateRequest { path, data, acl, flags }),
        };
        let servers = self.servers.clone();
        Box::pin(async move {
            let answer = answer.answer().await?;
            let Create2Response { path, stat } = decode(&answer)?;
            Ok((servers.own(path.unwrap_or_default()).to_owned(), stat))
        })
    }

    /// Deletes a znode that has this version, if one is given. The root is refused, also that of a chroot.
    pub fn delete(&self, path: &str, version: Option<i32>) -> Reply<()> {
        let full = if path == path::ROOT { path.to_owned() } else { self.servers.full(path) };
        let (path, version) = (full, version.unwrap_or(VERSION_ANY));
        let answer = self.send(OpCode::Delete, &DeleteRequest { path: Some(&path), version });
        Box::pin(async { answer.answer().await.map(drop) })
    }

    /// The Stat, or `None` without such a znode. The watch is set in both cases.
    pub fn exists(&self, path: &str, watcher: Option<&Watcher>) -> Reply<Option<Stat>> {
        let path = self.servers.full(path);
        let request = ExistsRequest { path: Some(&path), watch: watcher.is_some() };
        let after = watcher.map_or(After::Nothing, |watcher| After::WatchExists(path.clone(), watcher.clone()));
        let answer = self.send_then(OpCode::Exists, &request, after);
        Box::pin(async {
            match answer.answer().await {
                Ok(answer) => Ok(Some(decode::<ExistsResponse>(&answer)?.stat)),
                Err(error) if error.code == ErrorCode::NoNode => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    /// Data and Stat. `None` is null.
    pub fn get_data(&self, path: &str, watcher: Option<&Watcher>) -> Reply<(Option<Vec<u8>>, Stat)> {
        self.data_at(self.servers.full(path), watcher)
    }

    /// The members of the ensemble, as text, and the Stat of their znode.
    pub fn get_config(&self, watcher: Option<&Watcher>) -> Reply<(Option<Vec<u8>>, Stat)> {
        self.data_at(CONFIG.to_owned(), watcher)
    }

    fn data_at(&self, path: String, watcher: Option<&Watcher>) -> Reply<(Option<Vec<u8>>, Stat)> {
        let request = GetDataRequest { path: Some(&path), watch: watcher.is_some() };
        let answer = self.send_then(OpCode::GetData, &request, kept(Kind::Data, &path, watcher));
        Box::pin(async { data(&answer.answer().await?) })
    }

    /// Replaces the data of a znode that has this version, if one is given.
    pub fn set_data(&self, path: &str, data: Option<&[u8]>, version: Option<i32>) -> Reply<Stat> {
        let (path, version) = (self.servers.full(path), version.unwrap_or(VERSION_ANY));
        let answer = self.send(OpCode::SetData, &SetDataRequest { path: Some(&path), data, version });
        Box::pin(async { Ok(decode::<SetDataResponse>(&answer.answer().await?)?.stat) })
    }

    /// The names of the children, in the server's order, and the Stat of their parent.
    pub fn get_children(&self, path: &str, watcher: Option<&Watcher>) -> Reply<(Vec<String>, Stat)> {
        let path = self.servers.full(path);
        let request = GetChildren2Request { path: Some(&path), watch: watcher.is_some() };
        let answer = self.send_then(OpCode::GetChildren2, &request, kept(Kind::Children, &path, watcher));
        Box::pin(async {
            let answer = answer.answer().await?;
            let GetChildren2Response { children, stat } = decode(&answer)?;
            Ok((children.into_iter().flatten().flatten().map(str::to_owned).collect(), stat))
        })
    }

    /// The ACL, and the Stat.
    pub fn get_acl(&self, path: &str) -> Reply<(Vec<Acl>, Stat)> {
        let answer = self.send(OpCode::GetAcl, &GetAclRequest { path: Some(&self.servers.full(path)) });
        Box::pin(async {
            let answer = answer.answer().await?;
            let GetAclResponse { acl, stat } = decode(&answer)?;
            Ok((acl.into_iter().flatten().map(Acl::from).collect(), stat))
        })
    }

    /// Replaces the ACL of a znode, if its ACL has the version that is given.
    pub fn set_acl(&self, path: &str, acl: &[Acl], version: Option<i32>) -> Reply<Stat> {
        let (path, acl, version) = (self.servers.full(path), encoded(acl), version.unwrap_or(VERSION_ANY));
        let request = SetAclRequest { path: Some(&path), acl: acl.view().ok(), version };
        let answer = self.send(OpCode::SetAcl, &request);
        Box::pin(async { Ok(decode::<SetAclResponse>(&answer.answer().await?)?.stat) })
    }

    /// Does all operations in one transaction, or none.
    ///
    /// # Errors
    /// That of the first operation that failed, with its number from 0 as the reason.
    pub fn multi(&self, writes: &[Write<'_>]) -> Reply<()> {
        let paths: Vec<String> = writes.iter().map(|write| self.servers.full(write.path())).collect();
        let acls: Vec<VectorBuf> = writes.iter().map(|write| encoded(write.acl())).collect();
        let operations = writes.iter().zip(&paths).zip(&acls).map(|((write, path), acl)| operation(write, path, acl));
        let mut body = Vec::new();
        multi::encode_request(&mut Writer::new(&mut body), operations);
        let answer = self.push(|answer| Request::Operation { op: OpCode::Multi, body, after: After::Nothing, answer });
        Box::pin(async {
            let answer = answer.answer().await?;
            let results = MultiResponse::decode(&mut Reader::new(&answer))?;
            let failed = (0..).zip(results.iter()).find_map(|(at, result): (usize, _)| match result {
                MultiResult::Error(0) => None,
                MultiResult::Error(code) => Some(Error { reason: at.to_string(), ..Error::of_answer(code) }),
                _ => None,
            });
            failed.map_or(Ok(()), Err)
        })
    }

    /// Waits until the server has everything that was committed before.
    pub fn sync(&self, path: &str) -> Reply<()> {
        let answer = self.send(OpCode::Sync, &SyncRequest { path: Some(&self.servers.full(path)) });
        Box::pin(async { answer.answer().await.map(drop) })
    }

    /// The paths of the session's own ephemeral znodes that begin with this text.
    pub fn get_ephemerals(&self, prefix: &str) -> Reply<Vec<String>> {
        let prefix = self.servers.full(prefix);
        let answer = self.send(OpCode::GetEphemerals, &GetEphemeralsRequest { prefix_path: Some(&prefix) });
        let servers = self.servers.clone();
        Box::pin(async move {
            let answer = answer.answer().await?;
            let found: GetEphemeralsResponse<'_> = decode(&answer)?;
            Ok(found.ephemerals.into_iter().flatten().flatten().map(|path| servers.own(path).to_owned()).collect())
        })
    }

    /// How many znodes are below a path.
    pub fn get_all_children_number(&self, path: &str) -> Reply<i32> {
        let request = GetAllChildrenNumberRequest { path: Some(&self.servers.full(path)) };
        let answer = self.send(OpCode::GetAllChildrenNumber, &request);
        Box::pin(async { Ok(decode::<GetAllChildrenNumberResponse>(&answer.answer().await?)?.total_number) })
    }

    /// Schemes and users of the session.
    pub fn who_am_i(&self) -> Reply<Vec<(String, String)>> {
        let answer = self.push(|answer| Request::Operation {
            op: OpCode::WhoAmI,
            body: Vec::new(),
            after: After::Nothing,
            answer,
        });
        Box::pin(async {
            let answer = answer.answer().await?;
            let found: WhoAmIResponse<'_> = decode(&answer)?;
            let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
            Ok(found.client_info.into_iter().flatten().map(|one| (text(one.auth_scheme), text(one.user))).collect())
        })
    }

    /// Adds a persistent watch, which also sees later connections.
    pub fn add_watch(&self, path: &str, mode: AddWatchMode, watcher: &Watcher) -> Reply<()> {
        let path = self.servers.full(path);
        let request = AddWatchRequest { path: Some(&path), mode: mode.number() };
        let answer = self.send_then(OpCode::AddWatch, &request, kept(mode.into(), &path, Some(watcher)));
        Box::pin(async { answer.answer().await.map(drop) })
    }

    /// Removes all watches of this session of a path. `local` does so also if the server cannot.
    ///
    /// # Errors
    /// `NoWatcher` if there is none.
    pub fn remove_watches(&self, path: &str, which: WatcherType, local: bool) -> Reply<()> {
        let path = self.servers.full(path);
        let request = RemoveWatchesRequest { path: Some(&path), watcher_type: which.number() };
        let after = After::RemoveWatches { path: path.clone(), which, local };
        let answer = self.send_then(OpCode::RemoveWatches, &request, after);
        Box::pin(async { answer.answer().await.map(drop) })
    }

    /// Changes the members of the ensemble: either some join and leave, or `members` are all.
    pub fn reconfig(
        &self,
        joining: Option<&str>,
        leaving: Option<&str>,
        members: Option<&str>,
        version: Option<i64>,
    ) -> Reply<(Option<Vec<u8>>, Stat)> {
        let request = ReconfigRequest {
            joining_servers: joining,
            leaving_servers: leaving,
            new_members: members,
            cur_config_id: version.unwrap_or(VERSION_ANY.into()),
        };
        let answer = self.send(OpCode::Reconfig, &request);
        Box::pin(async { data(&answer.answer().await?) })
    }

    fn send<'a, R: Wire<'a>>(&self, op: OpCode, record: &R) -> Pending {
        self.send_then(op, record, After::Nothing)
    }

    fn send_then<'a, R: Wire<'a>>(&self, op: OpCode, record: &R, after: After) -> Pending {
        let mut body = Vec::new();
        record.encode(&mut Writer::new(&mut body));
        self.push(|answer| Request::Operation { op, body, after, answer })
    }

    fn push(&self, request: impl FnOnce(oneshot::Sender<Answer>) -> Request) -> Pending {
        let (sender, receiver) = oneshot::channel();
        let full = |_| Error::new(ErrorCode::SystemError, "too many requests wait");
        Pending(self.session.requests.try_send(request(sender)).map_err(full).map(|()| receiver))
    }
}

/// A request that was sent.
struct Pending(Result<oneshot::Receiver<Answer>, Error>);

impl Pending {
    async fn answer(self) -> Answer {
        self.0?.await.unwrap_or(Err(ErrorCode::Closing.into()))
    }
}

fn operation<'a>(write: &Write<'a>, path: &'a str, acl: &'a VectorBuf) -> MultiOp<'a> {
    let path = Some(path);
    let any = |version: Option<i32>| version.unwrap_or(VERSION_ANY);
    match *write {
        Write::Create { creation: Creation { data, mode, ttl_ms, .. }, .. } => {
            let request = CreateRequest { path, data, acl: acl.view().ok(), flags: mode.flag() };
            let op = op_of(mode);
            MultiOp::Create { op, request, ttl: (op == OpCode::CreateTtl).then_some(ttl_ms) }
        }
        Write::SetData { data, version, .. } => MultiOp::SetData(SetDataRequest { path, data, version: any(version) }),
        Write::Delete { version, .. } => MultiOp::Delete(DeleteRequest { path, version: any(version) }),
        Write::Check { version, .. } => MultiOp::Check(CheckVersionRequest { path, version: any(version) }),
    }
}

/// The operation that creates such a znode, and gives its Stat.
fn op_of(mode: CreateMode) -> OpCode {
    match mode {
        _ if mode.is_ttl() => OpCode::CreateTtl,
        _ if mode.is_container() => OpCode::CreateContainer,
        _ => OpCode::Create2,
    }
}

fn kept(kind: Kind, path: &str, watcher: Option<&Watcher>) -> After {
    watcher.map_or(After::Nothing, |watcher| After::Watch(kind, path.to_owned(), watcher.clone()))
}

fn decode<'a, R: Wire<'a>>(answer: &'a [u8]) -> Result<R, DecodeError> {
    R::decode(&mut Reader::new(answer))
}

fn data(answer: &[u8]) -> Result<(Option<Vec<u8>>, Stat), Error> {
    let GetDataResponse { data, stat } = decode(answer)?;
    Ok((data.map(<[u8]>::to_vec), stat))
}
