//! Objects in an S3-compatible store, written and read as streams.
//!
//! A thread of its own with a runtime of tokio talks to the store, so that it may be used from within another runtime. Credentials,
//! region and endpoint come from the environment, as other tools take them: `AWS_ACCESS_KEY_ID` and the like.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use futures_lite::StreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{Error, ObjectStore as _};
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::{self, Runtime};

/// Begins the name of an object: `s3://BUCKET/KEY`.
pub(super) const SCHEME: &str = "s3://";
/// Pieces on their way to and from the store.
const PIECES: usize = 16;
/// Of pieces that are written.
const PIECE_BYTES: usize = 256 << 10;

type Pieces = Receiver<Result<Vec<u8>, String>>;

/// An object that is written. It exists once it is finished.
pub(super) struct Upload {
    /// `None` after a failure. An empty piece is the end.
    pieces: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Upload {
    /// Begins an object that must not be there.
    ///
    /// # Errors
    /// If the name or the environment cannot be used, the store does not answer, or the object is there.
    pub(super) fn begin(url: &str) -> Result<Upload, String> {
        let (pieces, incoming) = sync_channel::<Vec<u8>>(PIECES);
        let (ready, begun) = sync_channel(1);
        let url = url.to_owned();
        let send = move || {
            let (runtime, store, path) = match create(&url) {
                Ok(created) => created,
                Err(error) => return ready.send(Err(error)).map_err(|error| error.to_string()),
            };
            ready.send(Ok(())).map_err(|error| error.to_string())?;
            let mut writer = BufWriter::new(std::sync::Arc::new(store), path);
            for piece in incoming {
                let is_end = piece.is_empty();
                let done = runtime
                    .block_on(async { if is_end { writer.shutdown().await } else { writer.write_all(&piece).await } });
                if is_end || done.is_err() {
                    return done.map_err(|error| said(&error));
                }
            }
            runtime.block_on(writer.abort()).map_err(|error| said(&error))
        };
        let thread = thread::Builder::new().name("upload".to_owned()).spawn(send).map_err(|error| error.to_string())?;
        begun.recv().unwrap_or_else(|_| Err("the upload failed".to_owned()))?;
        Ok(Upload { pieces: Some(pieces), thread: Some(thread) })
    }

    /// Makes the object exist.
    ///
    /// # Errors
    /// If the store refuses it.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.send(Vec::new())?;
        self.end()
    }

    fn send(&mut self, piece: Vec<u8>) -> io::Result<()> {
        let is_sent = self.pieces.as_ref().is_some_and(|pieces| pieces.send(piece).is_ok());
        if is_sent { Ok(()) } else { self.end().and_then(|()| Err(io::ErrorKind::BrokenPipe.into())) }
    }

    /// Waits for the thread. Without an end of the object it removes its parts.
    fn end(&mut self) -> io::Result<()> {
        self.pieces = None;
        let ended = self.thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        ended.unwrap_or_else(|_| Err("the upload failed".to_owned())).map_err(io::Error::other)
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES);
        if count > 0 {
            self.send(bytes[..count].to_vec())?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // The fault that ends the command is told already.
        let _ = self.end();
    }
}

/// An object that is read.
pub(super) struct Download {
    pieces: Pieces,
    piece: io::Cursor<Vec<u8>>,
}

impl Download {
    /// # Errors
    /// If the name or the environment cannot be used, or the object cannot be read.
    pub(super) fn begin(url: &str) -> Result<Download, String> {
        let (runtime, store, path) = open(url)?;
        let object = runtime.block_on(store.get(&path)).map_err(|error| said(&error))?;
        let (to, pieces) = sync_channel(PIECES);
        let receive = move || {
            let mut stream = object.into_stream();
            while let Some(piece) = runtime.block_on(stream.next()) {
                let piece = piece.map(|bytes| bytes.to_vec()).map_err(|error| said(&error));
                let is_last = piece.is_err();
                if to.send(piece).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new().name("download".to_owned()).spawn(receive).map_err(|error| error.to_string())?;
        Ok(Download { pieces, piece: io::Cursor::default() })
    }
}

impl Read for Download {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.piece.read(bytes)?;
            if count > 0 || bytes.is_empty() {
                return Ok(count);
            }
            match self.pieces.recv() {
                Ok(piece) => {
                    let next = piece.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))?;
                    drop(mem::replace(&mut self.piece, io::Cursor::new(next)));
                }
                Err(_) => return Ok(0),
            }
        }
    }
}

/// The paths of objects below a prefix, without that.
///
/// # Errors
/// If the name or the environment cannot be used, or the store does not answer.
pub(super) fn list(url: &str) -> Result<Vec<String>, String> {
    let (runtime, store, prefix) = open(url.trim_end_matches('/'))?;
    runtime.block_on(async {
        let (mut objects, mut names) = (store.list(Some(&prefix)), Vec::new());
        while let Some(object) = objects.next().await {
            let path = object.map_err(|error| said(&error))?.location;
            let below = path.as_ref().strip_prefix(prefix.as_ref()).and_then(|rest| rest.strip_prefix('/'));
            names.extend(below.map(str::to_owned));
        }
        Ok(names)
    })
}

/// The store, for an object that is not there.
fn create(url: &str) -> Result<(Runtime, AmazonS3, Path), String> {
    let (runtime, store, path) = open(url)?;
    match runtime.block_on(store.head(&path)) {
        Err(Error::NotFound { .. }) => Ok((runtime, store, path)),
        Ok(_) => Err("it is there already; choose another name".to_owned()),
        Err(error) => Err(said(&error)),
    }
}

fn open(url: &str) -> Result<(Runtime, AmazonS3, Path), String> {
    let (bucket, key) = url.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).unwrap_or_default();
    if bucket.is_empty() || key.is_empty() || key.ends_with('/') {
        return Err(format!("it names no object; give {SCHEME}BUCKET/KEY"));
    }
    let store = AmazonS3Builder::from_env().with_bucket_name(bucket).build().map_err(|error| said(&error))?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    Ok((runtime, store, Path::parse(key).map_err(|error| error.to_string())?))
}

/// The store's reason without its markup, and the remedy for a missing environment.
fn said(error: &dyn Display) -> String {
    let error = error.to_string();
    let code = error.split_once("<Code>").and_then(|(_, rest)| Some(rest.split_once("</Code>")?.0));
    let reason = code.map_or_else(String::new, |code| format!(": {code}"));
    let (first, _) = error.split_once("<?xml").unwrap_or((&error, ""));
    let first = first.trim_end_matches([':', ' ', '\n']);
    format!(
        "{first}{reason}; look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT and AWS_ALLOW_HTTP"
    )
}
