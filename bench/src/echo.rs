//! The replies of the two echo servers: just enough of the protocol to answer a load, without a tree.
//!
//! Used by `glommio-echo` and `epoll-echo` alone, on their one thread. Replies are encoded once at the start and copied.
//! No tree, no session, no disk, no limits: they measure the cost of sockets. `set` and `create` are acknowledged and
//! discarded, but for the last value, which every getData returns.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use corral_wire::frame::{FRAME_MAX_DEFAULT, append_frame};
use corral_wire::records::{
    ConnectRequest, ConnectResponse, CreateRequest, CreateResponse, ExistsResponse, GetDataResponse, ReplyHeader,
    RequestHeader, SetDataRequest, Stat,
};
use corral_wire::{ErrorCode, OpCode, Reader, VectorEncoder};

use crate::args::pin;
use crate::frames::{Frames, encoded, value};

/// Bytes to read off a socket at once.
pub const SCRATCH_BYTES: usize = 64 << 10;

/// Bytes of the value before the first write.
const VALUE_BYTES_DEFAULT: usize = 100;

/// A bare TCP server that replies to the load generator without a tree: a floor to compare servers with.
///
/// Answers connect, ping, get, exists, children, set, create, delete and close; everything else is UNIMPLEMENTED.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct EchoArgs {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:2181", value_name = "HOST:PORT")]
    pub addr: String,
    /// Pin the thread to this CPU
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Bytes of the value in every getData reply [default: as written last]
    #[arg(long)]
    pub value_bytes: Option<usize>,
    /// Children in every getChildren reply; as in the load
    #[arg(long, default_value_t = 100)]
    pub children: u32,
}

/// The whole of an echo: parses the flags, pins the thread, serves. Returns only after a failure.
pub fn run(serve: impl FnOnce(EchoArgs, Replies) -> Result<()>) -> ExitCode {
    let args = EchoArgs::parse();
    let ran = pin(args.cpu).and_then(|()| Replies::of(&args)).and_then(|replies| serve(args, replies));
    let failed = ran.map_err(|error| report(&format!("{error:#}")));
    if failed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a line on standard error.
pub fn report(text: &str) {
    // If standard error is closed, the exit code is left.
    let _ = writeln!(io::stderr(), "echo: {text}");
}

/// The encoded replies, without their headers.
#[derive(Debug)]
pub struct Replies {
    /// Whether the value's size is that of the last one written.
    follows: bool,
    value_bytes: usize,
    data: Vec<u8>,
    stat: Vec<u8>,
    children: Vec<u8>,
}

impl Replies {
    /// Encodes them.
    ///
    /// # Errors
    /// A value larger than 2 GiB.
    pub fn of(args: &EchoArgs) -> Result<Self> {
        let num_children = i32::try_from(args.children).context("--children")?;
        let children = encoded(|writer| {
            let mut names = VectorEncoder::new(writer);
            for child in 0..args.children {
                names.push(&Some(format!("{child:08}").as_str()));
            }
            names.finish();
            Stat { num_children, ..Stat::default() }.encode(writer);
        });
        let follows = args.value_bytes.is_none();
        let (data, stat) = (Vec::new(), Vec::new());
        let mut replies = Self { follows, value_bytes: 0, data, stat, children };
        replies.resize(args.value_bytes.unwrap_or(VALUE_BYTES_DEFAULT))?;
        Ok(replies)
    }

    fn resize(&mut self, value_bytes: usize) -> Result<()> {
        let data_length = i32::try_from(value_bytes).context("--value-bytes")?;
        let (value, stat) = (value(value_bytes), Stat { data_length, ..Stat::default() });
        self.value_bytes = value_bytes;
        self.data = encoded(|writer| GetDataResponse { data: Some(&value), stat }.encode(writer));
        self.stat = encoded(|writer| ExistsResponse { stat }.encode(writer));
        Ok(())
    }

    /// Values of another size than before come when another load begins.
    fn written(&mut self, data: Option<&[u8]>) -> Result<()> {
        match data.map_or(0, <[u8]>::len) {
            bytes if self.follows && bytes > 0 && bytes != self.value_bytes => self.resize(bytes),
            _ => Ok(()),
        }
    }

    /// Replies to one request frame. Returns whether the session stays open.
    fn answer(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let mut reader = Reader::new(body);
        let RequestHeader { xid, op } = RequestHeader::decode(&mut reader)?;
        let op = OpCode::from_i32(op);
        let mut path = Vec::new();
        match op {
            Some(OpCode::SetData) => self.written(SetDataRequest::decode(&mut reader)?.data)?,
            Some(OpCode::Create) => {
                let request = CreateRequest::decode(&mut reader)?;
                self.written(request.data)?;
                path = encoded(|writer| CreateResponse { path: request.path }.encode(writer));
            }
            _ => {}
        }
        let record = match op {
            Some(OpCode::GetData) => Some(&self.data),
            Some(OpCode::Exists | OpCode::SetData) => Some(&self.stat),
            Some(OpCode::GetChildren2) => Some(&self.children),
            Some(OpCode::Create | OpCode::Ping | OpCode::Delete | OpCode::CloseSession) => Some(&path),
            _ => None,
        };
        let unknown = ReplyHeader::error(xid, 1, ErrorCode::Unimplemented);
        append_frame(out, |writer| {
            record.map_or(unknown, |_| ReplyHeader::ok(xid, 1)).encode(writer);
            writer.raw(record.map_or(&[], Vec::as_slice));
        })?;
        Ok(op != Some(OpCode::CloseSession))
    }
}

fn connect(body: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let timeout_ms = ConnectRequest::decode(&mut Reader::new(body))?.timeout_ms;
    let (passwd, read_only) = (Some(&[0; 16][..]), Some(false));
    let response = ConnectResponse { protocol_version: 0, timeout_ms, session_id: 1, passwd, read_only };
    Ok(append_frame(out, |writer| response.encode(writer))?)
}

/// One connection's bytes.
#[derive(Debug, Default)]
pub struct EchoSession {
    connected: bool,
    partial: Frames,
    /// Replies that are not sent yet.
    pub out: Vec<u8>,
}

impl EchoSession {
    /// Replies to every whole frame. Returns whether the session stays open.
    ///
    /// # Errors
    /// Bytes that are no request.
    pub fn take(&mut self, received: &[u8], replies: &mut Replies) -> Result<bool> {
        let Self { connected, partial, out } = self;
        partial.take(received, FRAME_MAX_DEFAULT, |body| {
            if std::mem::replace(connected, true) {
                replies.answer(body, out)
            } else {
                connect(body, out).map(|()| true)
            }
        })
    }
}
