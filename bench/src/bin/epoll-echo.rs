//! The physical floor: a bare epoll server that replies to the load generator without a tree.
//!
//! One thread, level-triggered epoll, no runtime. A ready socket costs one read and one write, whatever the number of
//! requests in it; a socket that takes no more is not read until it does. What it answers is `corral_bench::echo`'s
//! business. No server can need less CPU time than this without fewer system calls.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use corral_bench::echo::{EchoArgs, EchoSession, Replies, SCRATCH_BYTES};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::unistd::Pid;

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
/// Connections at once; more are closed on accept.
const CONNECTIONS_MAX: usize = 65_536;
/// The listener's place among the events; connections have their index.
const LISTENER: u64 = u64::MAX;

/// A bare epoll TCP server that replies to the load generator without a tree: the physical floor to compare servers with.
///
/// Answers connect, ping, get, exists, children, set, create, delete and close; everything else is UNIMPLEMENTED.
#[derive(Parser)]
#[command(name = "epoll-echo", version)]
struct Cli {
    #[command(flatten)]
    echo: EchoArgs,
}

struct Connection {
    stream: TcpStream,
    session: EchoSession,
    /// Whether the kernel is asked for room to write instead of bytes to read.
    full: bool,
    /// The peer has said goodbye; the connection ends when everything is sent.
    closing: bool,
}

struct Floor {
    epoll: Epoll,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    replies: Replies,
    scratch: Vec<u8>,
}

impl Floor {
    fn new(args: &EchoArgs) -> Result<Self> {
        let listener = TcpListener::bind(&args.addr).with_context(|| format!("--addr {}", args.addr))?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        writeln!(io::stderr(), "epoll-echo: listening on {}", listener.local_addr()?)?;
        let (connections, free, scratch) = (Vec::new(), Vec::new(), vec![0; SCRATCH_BYTES]);
        Ok(Self { epoll, listener, connections, free, replies: Replies::of(args)?, scratch })
    }

    fn run(&mut self) -> Result<()> {
        let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
        loop {
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(error) => return Err(error).context("epoll_wait"),
            };
            for event in &events[..count] {
                match usize::try_from(event.data()) {
                    Ok(at) if event.data() != LISTENER => self.turn(at),
                    _ => self.accept()?,
                }
            }
        }
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => continue,
                Err(error) => return Err(error).context("accept"),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            if self.free.is_empty() {
                if self.connections.len() == CONNECTIONS_MAX {
                    continue;
                }
                self.free.push(self.connections.len());
                self.connections.push(None);
            }
            let at = self.free.pop().expect("one was pushed if there was none");
            self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, at as u64))?;
            let session = EchoSession::default();
            self.connections[at] = Some(Connection { stream, session, full: false, closing: false });
        }
    }

    /// One read and one write of a ready socket; a connection that ends for any reason is dropped, which closes it.
    fn turn(&mut self, at: usize) {
        let Some(connection) = self.connections.get_mut(at).and_then(Option::as_mut) else { return };
        match connection.turn(at, &self.epoll, &mut self.replies, &mut self.scratch) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                let _ = writeln!(io::stderr(), "epoll-echo: connection closed: {error:#}");
            }
        }
        self.connections[at] = None;
        self.free.push(at);
    }
}

impl Connection {
    fn turn(&mut self, at: usize, epoll: &Epoll, replies: &mut Replies, scratch: &mut [u8]) -> Result<bool> {
        if !self.full {
            match self.stream.read(scratch) {
                Ok(0) => return Ok(false),
                Ok(bytes) => self.closing = !self.session.take(&scratch[..bytes], replies)?,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !self.session.out.is_empty() {
            match self.stream.write(&self.session.out) {
                Ok(sent) if sent == self.session.out.len() => self.session.out.clear(),
                Ok(sent) => drop(self.session.out.drain(..sent)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let full = !self.session.out.is_empty();
        if full != self.full {
            self.full = full;
            let flags = if full { EpollFlags::EPOLLOUT } else { EpollFlags::EPOLLIN };
            epoll.modify(&self.stream, &mut EpollEvent::new(flags, at as u64))?;
        }
        Ok(full || !self.closing)
    }
}

fn start() -> Result<()> {
    let args = Cli::parse().echo;
    if let Some(cpu) = args.cpu {
        let mut set = CpuSet::new();
        set.set(cpu).with_context(|| format!("--cpu {cpu}"))?;
        sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("--cpu {cpu}"))?;
    }
    Floor::new(&args)?.run()
}

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "epoll-echo: {error:#}");
            ExitCode::FAILURE
        }
    }
}
