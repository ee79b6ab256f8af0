//! The data path on the runtime's own sockets, for kernels that do not serve the ring.
//!
//! Lives on the executor it was made on. Reading and writing never block and never keep the other waiting.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;

/// One client's socket.
#[derive(Debug)]
pub(crate) struct Stream {
    stream: RefCell<TcpStream>,
}

impl Stream {
    /// Takes over a connected socket, on the executor that will serve it.
    pub(crate) fn adopt(stream: std::net::TcpStream) -> Stream {
        Stream { stream: RefCell::new(TcpStream::from(socket2::Socket::from(stream))) }
    }

    /// Bytes into `buffer`, 0 at the end of the stream.
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, buffer)
    }

    /// As many of the bytes as the socket takes.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_write(cx, bytes)
    }

    /// Ends both directions; a read that waits returns.
    pub(crate) fn shut_down(&self) {
        let stream = self.stream.borrow();
        let shutting = pin!(stream.shutdown(Shutdown::Both));
        // Done at the first poll; an error means that it is closed already.
        let _ = shutting.poll(&mut Context::from_waker(Waker::noop()));
    }
}
