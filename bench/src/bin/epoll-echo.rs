//! The physical floor: a bare epoll server that replies to the load generator without a tree.
//!
//! One thread, level-triggered epoll, no runtime. A ready socket costs one read and one write, whatever the number of
//! requests in it; a socket that takes no more is not read until it does. What it answers is `corral_bench::echo`'s
//! business. No server can need less CPU time than this without fewer system calls.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use anyhow::{Context, Result};
use corral_bench::echo::{EchoArgs, EchoSession, Replies, SCRATCH_BYTES, report, run};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
/// The listener's number among the events; connections have others.
const LISTENER: u64 = u64::MAX;

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
    /// By the number of the event.
    connections: BTreeMap<u64, Connection>,
    accepted: u64,
    replies: Replies,
    scratch: Vec<u8>,
}

impl Floor {
    fn new(args: &EchoArgs, replies: Replies) -> Result<Self> {
        let listener = TcpListener::bind(&args.addr).with_context(|| format!("--addr {}", args.addr))?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        report(&format!("listening on {}", listener.local_addr()?));
        let (connections, scratch) = (BTreeMap::new(), vec![0; SCRATCH_BYTES]);
        Ok(Self { epoll, listener, connections, accepted: 0, replies, scratch })
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
                match event.data() {
                    LISTENER => self.accept()?,
                    at => self.turn(at),
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
            self.accepted += 1;
            self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, self.accepted))?;
            let session = EchoSession::default();
            self.connections.insert(self.accepted, Connection { stream, session, full: false, closing: false });
        }
    }

    /// One read and one write of a ready socket; a connection that ends for any reason is dropped, which closes it.
    fn turn(&mut self, at: u64) {
        let Some(connection) = self.connections.get_mut(&at) else { return };
        match connection.turn(at, &self.epoll, &mut self.replies, &mut self.scratch) {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => report(&format!("connection closed: {error:#}")),
        }
        self.connections.remove(&at);
    }
}

impl Connection {
    fn turn(&mut self, at: u64, epoll: &Epoll, replies: &mut Replies, scratch: &mut [u8]) -> Result<bool> {
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
            epoll.modify(&self.stream, &mut EpollEvent::new(flags, at))?;
        }
        Ok(full || !self.closing)
    }
}

fn main() -> ExitCode {
    run(|args, replies| Floor::new(&args, replies)?.run())
}
