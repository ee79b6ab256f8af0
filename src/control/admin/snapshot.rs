//! The commands `snapshot` and `backup`: the present state as a snapshot of ZooKeeper, and as a backup of corral.
//!
//! The server writes a snapshot of its own if anything changed since the last one. A thread of low priority reads it from the mapped file
//! and sends it, in ZooKeeper's format or as it is. No data core takes part, and nothing else is written to the disk.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use corral_core::ids::Zxid;
use corral_core::session::SessionTable;
use corral_core::view::View;
use corral_storage::{MmapDisk, SnapshotFile};
use corral_wire::fourletter::FourLetter;
use corral_zookeeper::export;
use futures_lite::StreamExt as _;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::commands::{Format, failed};
use super::json;
use super::json::object;
use crate::control::http::{self, Client};
use crate::control::space::newest_snapshot;
use crate::data::backups;
use crate::data::snapshots::load;
use crate::messages::ToControl;
use crate::runtime::clock::Clock;
use crate::runtime::threads::lower_priority;

/// Pauses until the server's own snapshot is there, and how many.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 12_000;
/// How long a client waits for the one before.
const PERMIT_WITHIN: Duration = Duration::from_secs(1);
/// A client that reads nothing for this time is disconnected.
const STALL: Duration = Duration::from_secs(30);
/// Chunks on their way, of 256 KiB each.
const CHUNKS: usize = 4;

/// Serves one client at a time.
pub(super) struct Snapshots {
    data_dir: PathBuf,
    server: u8,
    one: Arc<Semaphore>,
}

/// Before the first byte.
struct Head {
    zxid: Zxid,
    size: u64,
}

impl Snapshots {
    pub(super) fn new(data_dir: PathBuf, server: u8) -> Snapshots {
        Snapshots { data_dir, server, one: Arc::new(Semaphore::new(1)) }
    }

    /// The answer to the command of this name. Without `streams` it has the headers alone.
    pub(super) async fn answer(
        &self,
        control: &flume::Sender<ToControl>,
        client: &Client,
        (command, format): (&'static str, Format),
        streams: bool,
    ) -> Response {
        let refused = |code, error: &str| json(code, failed(command, error));
        // The client before may have all its bytes, and its thread not ended.
        let Ok(Ok(permit)) = timeout(PERMIT_WITHIN, Arc::clone(&self.one).acquire_owned()).await else {
            return refused(StatusCode::TOO_MANY_REQUESTS, "another client is sent a snapshot; try again later");
        };
        let Some(gathered) = http::ask(control, FourLetter::Srvr, 0).await else { return http::stops() };
        if !gathered.is_serving() {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "the server does not serve");
        }
        if control.send(ToControl::SnapshotWanted).is_err() {
            return http::stops();
        }
        let Some(file) = self.wait_for(gathered.report.totals.zxid).await else {
            return refused(StatusCode::INTERNAL_SERVER_ERROR, "no snapshot is written; see the server's log");
        };
        client.has_no_deadline();
        let (head, headed) = oneshot::channel();
        let (chunks, body) = flume::bounded(CHUNKS);
        let (data_dir, server) = (self.data_dir.clone(), self.server);
        let run = move || {
            let _permit = permit;
            lower_priority();
            let chunks = streams.then_some(chunks);
            let sent = match format {
                Format::ZooKeeper => send(&data_dir, &file, head, chunks),
                Format::Backup => send_backup(&data_dir, &file, server, head, chunks),
            };
            if let Err(error) = sent {
                tracing::warn!(command, "the snapshot was not sent whole: {error}");
            }
        };
        if thread::Builder::new().name("export".to_owned()).spawn(run).is_err() {
            return refused(StatusCode::INTERNAL_SERVER_ERROR, "no thread can be started");
        }
        let Ok(Head { zxid, size }) = headed.await else {
            return refused(StatusCode::INTERNAL_SERVER_ERROR, "the snapshot cannot be read; see the server's log");
        };
        let headers = [("last_zxid", zxid.to_string()), ("snapshot_size", size.to_string())];
        if !streams {
            let body = object(|fields| {
                fields.put("command", command);
                fields.put("error", &None::<&str>);
            });
            return (headers, json(StatusCode::OK, body)).into_response();
        }
        let content =
            [(header::CONTENT_TYPE, "application/octet-stream".to_owned()), (header::CONTENT_LENGTH, size.to_string())];
        (headers, content, Body::from_stream(body.into_stream().map(Ok::<Bytes, Infallible>))).into_response()
    }

    /// The file of a snapshot that holds everything up to this zxid.
    async fn wait_for(&self, zxid: Zxid) -> Option<String> {
        for _ in 0..LOOKS_MAX {
            if let Some((newest, _)) = newest_snapshot(&self.data_dir)
                && newest.zxid >= zxid.0
            {
                return Some(newest.file);
            }
            sleep(LOOK_EVERY).await;
        }
        None
    }
}

/// Reads the file, announces the size, and sends the bytes.
fn send(data_dir: &Path, file: &str, head: oneshot::Sender<Head>, to: Option<flume::Sender<Bytes>>) -> io::Result<()> {
    let disk = MmapDisk::open_read_only(data_dir).map_err(io::Error::other)?;
    let loaded = load(&disk, file, 1, &AtomicU64::new(0)).map_err(io::Error::other)?;
    let sessions: SessionTable = loaded.snapshot.sessions().collect();
    let view = View::new(loaded.snapshot);
    let Counted(size) = export::write(&view, &sessions, Counted(0), &mut |_| {})?;
    if head.send(Head { zxid: view.zxid(), size }).is_err() {
        return Ok(());
    }
    to.map_or(Ok(()), |to| export::write(&view, &sessions, Chunks(to), &mut |_| {}).map(drop))
}

/// Checks the file, announces the size, and sends the bytes as they are.
fn send_backup(
    data_dir: &Path,
    file: &str,
    server: u8,
    head: oneshot::Sender<Head>,
    to: Option<flume::Sender<Bytes>>,
) -> io::Result<()> {
    let disk = MmapDisk::open_read_only(data_dir).map_err(io::Error::other)?;
    load(&disk, file, 1, &AtomicU64::new(0)).map_err(io::Error::other)?;
    let (file, time_ms) = (SnapshotFile::open(&disk, file).map_err(io::Error::other)?, Clock::start().wall().0);
    let envelope = backups::head(&file, server, time_ms);
    if head.send(Head { zxid: Zxid(envelope.zxid), size: envelope.envelope_bytes() }).is_err() {
        return Ok(());
    }
    to.map_or(Ok(()), |to| backups::write(&envelope, &file, Chunks(to)))
}

/// Counts bytes.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until the client takes them.
struct Chunks(flume::Sender<Bytes>);

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.send_timeout(Bytes::copy_from_slice(bytes), STALL);
        sent.map_err(|error| io::Error::new(io::ErrorKind::TimedOut, error.to_string()))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
