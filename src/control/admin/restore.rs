//! The command `restore`: a snapshot of ZooKeeper takes the place of all data of a server that runs alone.
//!
//! A thread of low priority writes the snapshot into a file beside the data, checks it, and makes data of it. Then the server stops in
//! good order, and starts with these. The former data stay on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use corral_core::ids::Zxid;
use corral_core::report::SpaceFacts;
use futures_lite::{StreamExt as _, stream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::commands::{RESTORE, failed};
use super::json;
use super::json::object;
use crate::control::http::Client;
use crate::control::space::Space;
use crate::exit::Fault;
use crate::messages::ToControl;
use crate::runtime::threads::lower_priority;

/// The received file, in the data directory. A start removes it.
const INCOMING: &str = "restore.tmp";
/// A client that sends nothing for this time is disconnected.
const STALL: Duration = Duration::from_secs(30);
/// Bytes between two looks at the free space.
const LOOK_BYTES: usize = 4 << 20;
/// Chunks between connection and file, of at most some hundred KiB each.
const CHUNKS: usize = 4;

/// Makes data for the next start of a snapshot, and gives its last zxid.
pub(crate) type Stage = Arc<dyn Fn(&Path) -> Result<Zxid, Fault> + Send + Sync>;

/// One restore at a time.
pub(super) struct Restores {
    /// Missing on a server of an ensemble.
    stage: Option<Stage>,
    incoming: PathBuf,
    space: Space,
    one: Arc<Semaphore>,
}

impl Restores {
    pub(super) fn new(stage: Option<Stage>, data_dir: &Path, space: Space) -> Restores {
        Restores { stage, incoming: data_dir.join(INCOMING), space, one: Arc::new(Semaphore::new(1)) }
    }

    /// Receives the body, and answers when its state is durable. The server restarts once the answer is sent.
    pub(super) async fn answer(&self, control: &flume::Sender<ToControl>, client: &Client, body: Body) -> Response {
        let refused = |code, error: &str| json(code, failed(RESTORE, error));
        let Some(stage) = self.stage.clone() else {
            let error = "the other servers of the ensemble would have other data: stop all, and use corral restore";
            return refused(StatusCode::SERVICE_UNAVAILABLE, error);
        };
        let Ok(permit) = Arc::clone(&self.one).try_acquire_owned() else {
            return refused(StatusCode::TOO_MANY_REQUESTS, "another snapshot is being restored");
        };
        client.has_no_deadline();
        let (chunks, received) = flume::bounded(CHUNKS);
        let (done, staged) = oneshot::channel();
        let (path, space, control) = (self.incoming.clone(), self.space.clone(), control.clone());
        let run = move || {
            lower_priority();
            let result = match receive(&path, &space, &received) {
                // From here on the server must not serve its former data for long, also if the client has gone.
                Ok(()) => stage(&path).map(|zxid| (zxid, Restart(control))).map_err(|fault| fault.sentence),
                Err(error) => Err(format!("the snapshot was not received: {error}")),
            };
            match &result {
                Ok((zxid, _)) => {
                    tracing::info!(%zxid, "a snapshot was received in the place of all data: the server restarts with it");
                }
                Err(error) => tracing::warn!("no data were restored: {error}"),
            }
            let _ = fs::remove_file(&path);
            drop(permit);
            let _ = done.send(result);
        };
        if thread::Builder::new().name("restore".to_owned()).spawn(run).is_err() {
            return refused(StatusCode::INTERNAL_SERVER_ERROR, "no thread can be started");
        }
        pass_on(body, chunks).await;
        let (zxid, restart) = match staged.await {
            Ok(Ok(staged)) => staged,
            failure => {
                let error = failure
                    .map_or_else(|_| "the restore ended early".to_owned(), |result| result.err().unwrap_or_default());
                return refused(StatusCode::INTERNAL_SERVER_ERROR, &error);
            }
        };
        let text = object(|fields| {
            fields.put("last_zxid", &zxid.0);
            fields.put("command", RESTORE);
            fields.put("error", &None::<&str>);
        });
        json(StatusCode::OK, text).map(|body| at_end(body, restart))
    }
}

/// Passes all of a body on, and then an empty chunk. Without that the body is not whole.
async fn pass_on(body: Body, chunks: flume::Sender<Bytes>) {
    let mut parts = body.into_data_stream();
    loop {
        let chunk = match timeout(STALL, parts.next()).await {
            Ok(Some(Ok(chunk))) if chunk.is_empty() => continue,
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => Bytes::new(),
            Ok(Some(Err(_))) | Err(_) => return,
        };
        let is_end = chunk.is_empty();
        if chunks.send_async(chunk).await.is_err() || is_end {
            return;
        }
    }
}

/// Writes the chunks, as long as the data in use keep their room on the disk.
fn receive(path: &Path, space: &Space, chunks: &flume::Receiver<Bytes>) -> io::Result<()> {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut unlooked = LOOK_BYTES;
    loop {
        if unlooked >= LOOK_BYTES {
            if space.look().iter().any(SpaceFacts::is_low) {
                return Err(io::Error::other("the disk has no room for it beside the data: make space"));
            }
            unlooked = 0;
        }
        let chunk = chunks.recv().map_err(|_| io::Error::other("it ended early, or nothing came for 30 s"))?;
        if chunk.is_empty() {
            return Ok(());
        }
        file.write_all(&chunk)?;
        unlooked += chunk.len();
    }
}

/// Stops the server when it is dropped behind staged data, which make it start again.
struct Restart(flume::Sender<ToControl>);

impl Drop for Restart {
    fn drop(&mut self) {
        let _ = self.0.send(ToControl::Stop);
    }
}

/// The body, and behind its end the drop of `last`.
fn at_end(body: Body, last: Restart) -> Body {
    let end = stream::once_future(async move {
        drop(last);
        Ok(Bytes::new())
    });
    Body::from_stream(body.into_data_stream().chain(end))
}
