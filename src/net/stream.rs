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
    /// Its reading task, while nothing is to be read.
    paused: RefCell<Option<Waker>>,
}

impl Stream {
    /// Takes over a connected socket, on the executor that will serve it.
    pub(crate) fn adopt(stream: std::net::TcpStream) -> Stream {
        let stream = RefCell::new(TcpStream::from(socket2::Socket::from(stream)));
        Stream { stream, paused: RefCell::new(None) }
    }

    /// Bytes into `buffer`, 0 at the end of the stream.
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_read(cx, buffer)
    }

    /// As many of the bytes as the socket takes.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream.borrow_mut()).poll_write(cx, bytes)
    }

    /// The reading task waits for [`Stream::resume`].
    pub(crate) fn pause(&self, reader: &Waker) {
        *self.paused.borrow_mut() = Some(reader.clone());
    }

    /// Wakes the reading task if it is paused.
    pub(crate) fn resume(&self) {
        let reader = self.paused.take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Ends both directions; a read that waits returns.
    pub(crate) fn shut_down(&self) {
        let stream = self.stream.borrow();
        let shutting = pin!(stream.shutdown(Shutdown::Both));
        // Done at the first poll; an error means that it is closed already.
        let _ = shutting.poll(&mut Context::from_waker(Waker::noop()));
    }
}
