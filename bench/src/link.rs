//! One socket as a client thread drives it: bytes not yet sent, bytes that are not yet a whole frame, and the kernel's
//! readiness.
//!
//! Owned by one client thread. Buffers grow only with the bytes in flight. Knows no xids and no sessions.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Context, Result};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use crate::frames::Frames;
use crate::limits::REPLY_BYTES_MAX;
use crate::tls::Socket;

/// A non-blocking socket with its two buffers.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: Socket,
    /// Bytes to send; what lies before `sent` is gone.
    pub(crate) out: Vec<u8>,
    sent: usize,
    partial: Frames,
    pub(crate) last_sent_ns: u64,
    pub(crate) last_received_ns: u64,
    /// Whether epoll waits for the socket to become writable.
    awaits_write: bool,
}

impl Link {
    /// Takes over a non-blocking socket that is being connected: epoll waits for it to become writable.
    pub(crate) fn new(socket: Socket, now_ns: u64) -> Self {
        let (last_sent_ns, last_received_ns) = (now_ns, now_ns);
        Self {
            socket,
            out: Vec::new(),
            sent: 0,
            partial: Frames::default(),
            last_sent_ns,
            last_received_ns,
            awaits_write: true,
        }
    }

    /// Sends as much as the socket takes. For the rest it registers with epoll, until the socket is writable.
    pub(crate) fn flush(&mut self, epoll: &Epoll, token: u64, now_ns: u64) -> Result<()> {
        let all_sent = self.send(now_ns)?;
        if all_sent == self.awaits_write {
            let wanted = if all_sent { EpollFlags::EPOLLIN } else { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT };
            epoll.modify(&self.socket.stream, &mut EpollEvent::new(wanted, token)).context("epoll_ctl")?;
            self.awaits_write = !all_sent;
        }
        Ok(())
    }

    fn send(&mut self, now_ns: u64) -> Result<bool> {
        while self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("sending"),
            }
            self.last_sent_ns = now_ns;
        }
        self.out.clear();
        self.sent = 0;
        match self.socket.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            flushed => flushed.context("sending").map(|()| true),
        }
    }

    /// Reads once. Returns the number of bytes now at the front of `scratch`; `Some(0)` if none came, `None` if the server
    /// has closed the connection.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) -> Result<Option<usize>> {
        match self.socket.read(scratch) {
            Ok(0) => Ok(None),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(Some(0)),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error).context("receiving"),
        }
    }

    /// Passes every whole frame of the received bytes to `take`.
    pub(crate) fn frames(&mut self, received: &[u8], take: &mut impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.partial.take(received, REPLY_BYTES_MAX, |body| take(body).map(|()| true)).map(|_| ())
    }
}
