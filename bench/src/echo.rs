//! The replies of the two echo servers: just enough of the protocol to answer a load, without a tree.
//!
//! Used by `glommio-echo` and `epoll-echo` alone, on their one thread. Replies are encoded once at the start and copied.
//! No tree, no session, no disk, no limits: they measure the cost of sockets. `set` and `create` are acknowledged and
//! discarded, but for the last value, which every getData returns.

use anyhow::{Context, Result};
use clap::Args;
use corral_wire::frame::{FRAME_MAX_DEFAULT, begin_frame, end_frame, next_frame};
use corral_wire::records::{
    ConnectRequest, ConnectResponse, CreateRequest, CreateResponse, ExistsResponse, GetDataResponse, ReplyHeader,
    RequestHeader, SetDataRequest, Stat,
};
use corral_wire::{ErrorCode, OpCode, Reader, VectorEncoder, Writer};

use crate::frames::{encoded, value};

/// Bytes to read off a socket at once.
pub const SCRATCH_BYTES: usize = 64 << 10;

/// Bytes of the value before the first write.
const VALUE_BYTES_DEFAULT: usize = 100;

/// The flags of an echo server.
#[derive(Clone, Debug, Args)]
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
        let mark = begin_frame(out);
        let mut writer = Writer::new(out);
        let ok = ReplyHeader::ok(xid, 1);
        match op {
            Some(OpCode::GetData) => {
                ok.encode(&mut writer);
                writer.raw(&self.data);
            }
            Some(OpCode::Exists) => {
                ok.encode(&mut writer);
                writer.raw(&self.stat);
            }
            Some(OpCode::SetData) => {
                self.written(SetDataRequest::decode(&mut reader)?.data)?;
                ok.encode(&mut writer);
                writer.raw(&self.stat);
            }
            Some(OpCode::GetChildren2) => {
                ok.encode(&mut writer);
                writer.raw(&self.children);
            }
            Some(OpCode::Create) => {
                let request = CreateRequest::decode(&mut reader)?;
                self.written(request.data)?;
                ok.encode(&mut writer);
                CreateResponse { path: request.path }.encode(&mut writer);
            }
            Some(OpCode::Ping | OpCode::Delete | OpCode::CloseSession) => ok.encode(&mut writer),
            _ => ReplyHeader::error(xid, 1, ErrorCode::Unimplemented).encode(&mut writer),
        }
        end_frame(out, mark)?;
        Ok(op != Some(OpCode::CloseSession))
    }
}

fn connect(body: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let request = ConnectRequest::decode(&mut Reader::new(body))?;
    let mark = begin_frame(out);
    let response = ConnectResponse {
        protocol_version: 0,
        timeout_ms: request.timeout_ms,
        session_id: 1,
        passwd: Some(&[0; 16]),
        read_only: Some(false),
    };
    response.encode(&mut Writer::new(out));
    end_frame(out, mark)?;
    Ok(())
}

/// One connection's bytes.
#[derive(Debug, Default)]
pub struct EchoSession {
    connected: bool,
    partial: Vec<u8>,
    /// Replies that are not sent yet.
    pub out: Vec<u8>,
}

impl EchoSession {
    /// Replies to every whole frame. Returns whether the session stays open.
    ///
    /// # Errors
    /// Bytes that are no request.
    pub fn take(&mut self, received: &[u8], replies: &mut Replies) -> Result<bool> {
        if self.partial.is_empty() {
            let (used, open) = self.answer_all(received, replies)?;
            self.partial.extend_from_slice(&received[used..]);
            return Ok(open);
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(received);
        let (used, open) = self.answer_all(&joined, replies)?;
        joined.drain(..used);
        if !joined.is_empty() {
            self.partial = joined;
        }
        Ok(open)
    }

    fn answer_all(&mut self, bytes: &[u8], replies: &mut Replies) -> Result<(usize, bool)> {
        let mut used = 0;
        while let Some((body, frame_bytes)) = next_frame(&bytes[used..], FRAME_MAX_DEFAULT)? {
            used += frame_bytes;
            if !self.connected {
                connect(body, &mut self.out)?;
                self.connected = true;
            } else if !replies.answer(body, &mut self.out)? {
                return Ok((used, false));
            }
        }
        Ok((used, true))
    }
}
