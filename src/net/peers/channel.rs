//! One connection, plain or in TLS, and how long-lived sockets between servers are set up.
//!
//! Lives on the thread that reads or writes it. It knows no frames; TLS is pushed on whenever the socket is read or written.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;
use rustix::time::Timespec;

use crate::net::peers::limits;

/// Plaintext that TLS takes before it has been sent, bytes.
const TLS_BUFFER_BYTES: usize = 256 << 10;

/// One connection, with its TLS state if it is encrypted.
pub(crate) struct Channel {
    socket: TcpStream,
    tls: Option<Box<rustls::Connection>>,
}

impl Channel {
    pub(crate) fn new(socket: TcpStream, tls: Option<rustls::Connection>) -> Channel {
        let tls = tls.map(|mut tls| {
            tls.set_buffer_limit(Some(TLS_BUFFER_BYTES));
            Box::new(tls)
        });
        Channel { socket, tls }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn tls(&self) -> Option<&rustls::Connection> {
        self.tls.as_deref()
    }

    /// Reads as `read(2)` does: 0 is the end, `WouldBlock` that nothing is there on a socket that does not wait.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = self.tls.as_deref_mut() else { return self.socket.read(room) };
        loop {
            match tls.reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if !advance(tls, &mut self.socket)? {
                return Ok(0);
            }
        }
    }

    /// Gets through with the handshake of TLS, so that the other side's certificate is known. `WouldBlock` while it lasts.
    pub(crate) fn shake_hands(&mut self) -> io::Result<()> {
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.flush()?;
            if let Some(tls) = self.tls.as_deref_mut()
                && !advance(tls, &mut self.socket)?
            {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Writes as `writev(2)` does. Bytes that TLS has taken are not sent yet: see `flush`.
    pub(crate) fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(tls) = self.tls.as_deref_mut() else { return self.socket.write_vectored(pieces) };
        let taken = tls.writer().write_vectored(pieces)?;
        match self.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && taken > 0 => Ok(taken),
            Err(error) => Err(error),
            Ok(()) if taken == 0 => Err(ErrorKind::WouldBlock.into()),
            Ok(()) => Ok(taken),
        }
    }

    /// Sends what TLS has taken; `WouldBlock` while the socket does not take it all.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = self.tls.as_deref_mut() else { return Ok(()) };
        while tls.wants_write() {
            tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// Whether TLS waits to send something.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Says goodbye as far as the socket takes it.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = self.tls.as_deref_mut() {
            tls.send_close_notify();
            let _ = self.flush();
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Passes arrived bytes to TLS and sends its answers; false at the end of the connection.
fn advance(tls: &mut rustls::Connection, socket: &mut TcpStream) -> io::Result<bool> {
    if tls.read_tls(socket)? == 0 {
        return Ok(false);
    }
    let processed = tls.process_new_packets();
    // Alerts too; a socket that is full here belongs to a peer that does not listen.
    while tls.wants_write() && tls.write_tls(socket).is_ok() {}
    processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    Ok(true)
}

/// Sets up a connected socket: small frames leave at once, and a host that is gone is noticed.
pub(crate) fn tune(socket: &TcpStream) -> io::Result<()> {
    let dead_after = u32::try_from(limits::DEAD_AFTER.as_millis()).unwrap_or(u32::MAX);
    socket.set_nodelay(true)?;
    sockopt::set_tcp_user_timeout(socket, dead_after)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, limits::PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, limits::PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket, limits::PROBES_MAX)?;
    Ok(())
}

/// Waits until the socket can be read, or also written, or the bell rings, or the time is over; the bell is silent again.
/// True when there is something to read, the end and an error included.
pub(crate) fn wait(
    socket: &TcpStream,
    to_write: bool,
    bell: BorrowedFd<'_>,
    time: Option<Duration>,
) -> io::Result<bool> {
    let mut wanted = PollFlags::IN | PollFlags::RDHUP;
    wanted.set(PollFlags::OUT, to_write);
    let mut polled = [PollFd::from_borrowed_fd(socket.as_fd(), wanted), PollFd::from_borrowed_fd(bell, PollFlags::IN)];
    pause(&mut polled, time)?;
    let [readable, woken] = polled.map(|one| one.revents());
    if woken.intersects(PollFlags::IN) {
        silence(bell);
    }
    Ok(readable.intersects(PollFlags::IN | PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR))
}

/// Polls; a signal counts as nothing.
pub(crate) fn pause(polled: &mut [PollFd<'_>], time: Option<Duration>) -> io::Result<()> {
    let time = time.map(|time| Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    match poll(polled, time.as_ref()) {
        Ok(_) => Ok(()),
        Err(rustix::io::Errno::INTR) => {
            polled.iter_mut().for_each(PollFd::clear_revents);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Empties a counter that was polled readable.
pub(crate) fn silence(bell: BorrowedFd<'_>) {
    let mut bytes = [0; 8];
    let _ = rustix::io::read(bell, &mut bytes);
}
