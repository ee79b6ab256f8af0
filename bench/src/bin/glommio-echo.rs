//! The floor: a glommio server that speaks just enough of the protocol to take the load, and answers from nowhere.
//!
//! One executor with default timers, one task per connection, one 64 KiB scratch shared by all, every whole frame
//! parsed and answered with a reply of fixed size, one write per batch. No tree, no session, no disk, no limits worth
//! the name: a yard-stick for the cost of sockets and of glommio, never a server. `set` and `create` are acknowledged
//! and forgotten.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::task::Poll;

use anyhow::{Context, Result};
use clap::Parser;
use corral_wire::frame::{FRAME_MAX_DEFAULT, begin_frame, end_frame, next_frame};
use corral_wire::records::{
    ConnectRequest, ConnectResponse, CreateRequest, CreateResponse, ExistsResponse, GetDataResponse, ReplyHeader,
    RequestHeader, Stat,
};
use corral_wire::{ErrorCode, OpCode, Reader, Writer};
use futures_lite::{AsyncRead, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement};

/// Bytes read off a socket at once.
const SCRATCH_BYTES: usize = 64 << 10;

/// A bare glommio TCP server that answers the load generator from nowhere: the floor to compare servers with.
///
/// Answers connect, ping, get, exists, set, create, delete and close; everything else is UNIMPLEMENTED.
#[derive(Parser)]
#[command(name = "glommio-echo", version)]
struct Cli {
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:2181", value_name = "HOST:PORT")]
    addr: String,
    /// Pin the executor to this CPU
    #[arg(long)]
    cpu: Option<usize>,
    /// Bytes of the value in every getData reply; as in the load
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,
}

/// The fixed parts of the replies.
struct Replies {
    value: Vec<u8>,
    stat: Stat,
}

impl Replies {
    fn of(value_bytes: usize) -> Result<Self> {
        let data_length = i32::try_from(value_bytes).context("--value-bytes")?;
        Ok(Self { value: corral_bench::value(value_bytes), stat: Stat { data_length, ..Stat::default() } })
    }

    /// Answers one request frame. Gives whether the session goes on.
    fn answer(&self, body: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let mut reader = Reader::new(body);
        let RequestHeader { xid, op } = RequestHeader::decode(&mut reader)?;
        let op = OpCode::from_i32(op);
        let mark = begin_frame(out);
        let mut writer = Writer::new(out);
        let ok = ReplyHeader::ok(xid, 1);
        match op {
            Some(OpCode::GetData) => {
                ok.encode(&mut writer);
                GetDataResponse { data: Some(&self.value), stat: self.stat }.encode(&mut writer);
            }
            Some(OpCode::Exists | OpCode::SetData) => {
                ok.encode(&mut writer);
                ExistsResponse { stat: self.stat }.encode(&mut writer);
            }
            Some(OpCode::Create) => {
                ok.encode(&mut writer);
                CreateResponse { path: CreateRequest::decode(&mut reader)?.path }.encode(&mut writer);
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
#[derive(Default)]
struct Session {
    connected: bool,
    partial: Vec<u8>,
    out: Vec<u8>,
}

impl Session {
    /// Answers every whole frame. Gives whether the session goes on.
    fn take(&mut self, received: &[u8], replies: &Replies) -> Result<bool> {
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

    fn answer_all(&mut self, bytes: &[u8], replies: &Replies) -> Result<(usize, bool)> {
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

async fn serve(mut stream: TcpStream, scratch: Rc<RefCell<Vec<u8>>>, replies: Rc<Replies>) -> Result<()> {
    stream.set_nodelay(true).map_err(io::Error::from)?;
    let mut session = Session::default();
    loop {
        // The scratch is borrowed within one poll only, and all frames are parsed in that poll.
        let open = poll_fn(|cx| {
            let mut scratch = scratch.borrow_mut();
            match Pin::new(&mut stream).poll_read(cx, &mut scratch[..]) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(0)) => Poll::Ready(Ok(false)),
                Poll::Ready(Ok(bytes)) => Poll::Ready(session.take(&scratch[..bytes], &replies)),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            }
        })
        .await?;
        stream.write_all(&session.out).await?;
        session.out.clear();
        if !open {
            return Ok(());
        }
    }
}

async fn listen(addr: String, replies: Replies) -> Result<()> {
    let listener = TcpListener::bind(&addr).map_err(|error| anyhow::anyhow!("--addr {addr}: {error}"))?;
    let scratch = Rc::new(RefCell::new(vec![0; SCRATCH_BYTES]));
    let replies = Rc::new(replies);
    writeln!(io::stderr(), "glommio-echo: listening on {}", listener.local_addr().map_err(io::Error::from)?)?;
    loop {
        let stream = listener.accept().await.map_err(io::Error::from)?;
        let (scratch, replies) = (Rc::clone(&scratch), Rc::clone(&replies));
        glommio::spawn_local(async move {
            if let Err(error) = serve(stream, scratch, replies).await {
                let _ = writeln!(io::stderr(), "glommio-echo: connection closed: {error:#}");
            }
        })
        .detach();
    }
}

fn start() -> Result<()> {
    let cli = Cli::parse();
    let replies = Replies::of(cli.value_bytes)?;
    let placement = cli.cpu.map_or(Placement::Unbound, Placement::Fixed);
    let executor = LocalExecutorBuilder::new(placement)
        .name("echo")
        .spawn(move || listen(cli.addr, replies))
        .map_err(|error| anyhow::anyhow!("the executor cannot start: {error}"))?;
    executor.join().map_err(|error| anyhow::anyhow!("the executor failed: {error}"))?
}

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "glommio-echo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
