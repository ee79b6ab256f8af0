//! The commands `snapshot`, `backup` and `log_entries`: the present state as a snapshot of ZooKeeper or a backup of corral, and
//! later entries of the log.
//!
//! For a state the server writes a snapshot of its own if anything changed since the last one. A thread of low priority reads it from the mapped file
//! and sends it, in ZooKeeper's format or as it is. No data core takes part, and nothing else is written to the disk.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::PathBuf;
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
use corral_core::tree::view::View;
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
use crate::data::committed::Committed;
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
    source: Source,
    one: Arc<Semaphore>,
}

/// The data that are sent.
#[derive(Clone)]
pub(super) struct Source {
    /// Directory of the snapshots.
    pub(super) data_dir: PathBuf,
    pub(super) log_dir: PathBuf,
    /// Id of this server.
    pub(super) server: u8,
}

/// The request of a client.
pub(super) struct Wanted {
    pub(super) command: &'static str,
    pub(super) format: Format,
    pub(super) argument: i64,
    /// Otherwise the headers alone.
    pub(super) streams: bool,
}

/// Before the first byte.
struct Head {
    zxid: Zxid,
    size: u64,
}

/// Where an answer goes.
struct To {
    head: oneshot::Sender<Head>,
    chunks: Option<flume::Sender<Bytes>>,
}

impl Snapshots {
    pub(super) fn new(source: Source) -> Snapshots {
        Snapshots { source, one: Arc::new(Semaphore::new(1)) }
    }

    /// The answer to a command.
    pub(super) async fn answer(
        &self,
        control: &flume::Sender<ToControl>,
        client: &Client,
        Wanted { command, format, argument, streams }: Wanted,
    ) -> Response {
        let refused = |code, error: &str| json(code, failed(command, error));
        // The client before may have all its bytes, and its thread not ended.
        let Ok(Ok(permit)) = timeout(PERMIT_WITHIN, Arc::clone(&self.one).acquire_owned()).await else {
            return refused(StatusCode::TOO_MANY_REQUESTS, "another client is sent data; try again later");
        };
        let Some(gathered) = http::ask(control, FourLetter::Srvr, 0).await else { return http::stops() };
        if !gathered.is_serving() {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "the server does not serve");
        }
        let zxid = gathered.report.totals.zxid;
        let mut file = String::new();
        if format != Format::Entries {
            if control.send(ToControl::SnapshotWanted).is_err() {
                return http::stops();
            }
            let Some(found) = self.wait_for(zxid).await else {
                return refused(StatusCode::INTERNAL_SERVER_ERROR, "no snapshot is written; see the server's log");
            };
            file = found;
        }
        client.has_no_deadline();
        let (head, headed) = oneshot::channel();
        let (chunks, body) = flume::bounded(CHUNKS);
        let (source, to) = (self.source.clone(), To { head, chunks: streams.then_some(chunks) });
        let run = move || {
            let _permit = permit;
            lower_priority();
            let sent = match format {
                Format::ZooKeeper => source.send(&file, to),
                Format::Backup => source.send_backup(&file, to),
                Format::Entries => source.send_entries(argument.unsigned_abs(), zxid, to),
            };
            if let Err(error) = sent {
                tracing::warn!(command, "the data were not sent whole: {error}");
            }
        };
        if thread::Builder::new().name("export".to_owned()).spawn(run).is_err() {
            return refused(StatusCode::INTERNAL_SERVER_ERROR, "no thread can be started");
        }
        let Ok(head) = headed.await else {
            return refused(StatusCode::INTERNAL_SERVER_ERROR, "the data cannot be read; see the server's log");
        };
        respond(command, &head, streams.then_some(body))
    }

    /// The file of a snapshot that holds everything up to this zxid.
    async fn wait_for(&self, zxid: Zxid) -> Option<String> {
        for _ in 0..LOOKS_MAX {
            if let Some((newest, _)) = newest_snapshot(&self.source.data_dir)
                && newest.zxid >= zxid.0
            {
                return Some(newest.file);
            }
            sleep(LOOK_EVERY).await;
        }
        None
    }
}

/// The headers, and the body unless it is not wanted.
fn respond(command: &str, head: &Head, body: Option<flume::Receiver<Bytes>>) -> Response {
    let headers = [("last_zxid", head.zxid.to_string()), ("snapshot_size", head.size.to_string())];
    let Some(body) = body else {
        let body = object(|fields| {
            fields.put("command", command);
            fields.put("error", &None::<&str>);
        });
        return (headers, json(StatusCode::OK, body)).into_response();
    };
    let content = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, head.size.to_string()),
    ];
    (headers, content, Body::from_stream(body.into_stream().map(Ok::<Bytes, Infallible>))).into_response()
}

impl Source {
    /// Reads the file, announces the size, and sends the bytes in ZooKeeper's format.
    fn send(&self, file: &str, to: To) -> io::Result<()> {
        let disk = MmapDisk::open_read_only(&self.data_dir).map_err(io::Error::other)?;
        let loaded = load(&disk, file, 1, &AtomicU64::new(0)).map_err(io::Error::other)?;
        let sessions: SessionTable = loaded.snapshot.sessions().collect();
        let view = View::new(loaded.snapshot);
        let Counted(size) = export::write(&view, &sessions, Counted(0), &mut |_| {})?;
        let body = to.begin(Head { zxid: view.zxid(), size });
        body.map_or(Ok(()), |body| export::write(&view, &sessions, body, &mut |_| {}).map(drop))
    }

    /// Checks the file, announces the size, and sends the bytes as they are.
    fn send_backup(&self, file: &str, to: To) -> io::Result<()> {
        let disk = MmapDisk::open_read_only(&self.data_dir).map_err(io::Error::other)?;
        load(&disk, file, 1, &AtomicU64::new(0)).map_err(io::Error::other)?;
        let file = SnapshotFile::open(&disk, file).map_err(io::Error::other)?;
        let head = backups::head(&file, self.server, Clock::start().wall().0);
        let head = Committed::find(&self.log_dir, head.index, Zxid(0))?.identify(head);
        let body = to.begin(Head { zxid: Zxid(head.zxid), size: head.envelope_bytes() });
        body.map_or(Ok(()), |body| backups::write(&head, &file, body))
    }

    /// Sends entries of the log behind the one with this index. The server has applied this zxid.
    fn send_entries(&self, before: u64, applied: Zxid, to: To) -> io::Result<()> {
        let found = Committed::find(&self.log_dir, before, applied)?;
        let head = found.head(self.server, Clock::start().wall().0);
        let body = to.begin(Head { zxid: applied, size: head.envelope_bytes() });
        body.map_or(Ok(()), |body| found.write(&head, body))
    }
}

impl To {
    /// Announces the head, and gives the way for the bytes if they are wanted.
    fn begin(self, head: Head) -> Option<Chunks> {
        self.head.send(head).ok()?;
        self.chunks.map(Chunks)
    }
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
