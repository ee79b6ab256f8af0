//! The record layer of one client's TLS: bytes of the socket on one side, bytes of the client protocol on the other.
//!
//! The handshake is complete when it comes here. Nothing blocks, and no private key is used.

use std::io::{Read as _, Write as _};

use rustls::ServerConnection;

/// Bytes that are encrypted at a time. They are held twice until the socket has taken them.
const SEALED_AT_ONCE: usize = 32 << 10;
/// Bytes of a record at most, and so of one decrypted piece.
const PIECE_BYTES: usize = 16 << 10;

/// TLS of one connection.
pub(super) struct TlsRecords {
    connection: ServerConnection,
    /// Encrypted bytes for the socket.
    sealed: Vec<u8>,
    /// How many of them the socket has taken.
    taken: usize,
    /// How many bytes of the client protocol they are.
    plain: usize,
}

/// Result of received bytes.
pub(super) struct Opened {
    /// Bytes of the client protocol.
    pub(super) bytes: Vec<u8>,
    /// The client sends no more.
    pub(super) ended: bool,
    /// The bytes are not TLS of this connection.
    pub(super) failed: Option<rustls::Error>,
}

impl TlsRecords {
    pub(super) fn new(mut connection: ServerConnection) -> TlsRecords {
        connection.set_buffer_limit(None);
        TlsRecords { connection, sealed: Vec::new(), taken: 0, plain: 0 }
    }

    /// Takes bytes of the socket.
    pub(super) fn open(&mut self, mut sealed: &[u8]) -> Opened {
        let mut opened = Opened { bytes: Vec::new(), ended: false, failed: None };
        loop {
            // Fails only where the decrypted bytes are not taken.
            if !sealed.is_empty() && self.connection.read_tls(&mut sealed).is_err() {
                opened.failed = Some(rustls::Error::General("received bytes are not taken".to_owned()));
                return opened;
            }
            match self.connection.process_new_packets() {
                Ok(state) => {
                    let count = state.plaintext_bytes_to_read();
                    let from = opened.bytes.len();
                    opened.bytes.resize(from + count, 0);
                    let _ = self.connection.reader().read_exact(&mut opened.bytes[from..]);
                    opened.ended |= state.peer_has_closed();
                }
                Err(error) => {
                    opened.failed = Some(error);
                    return opened;
                }
            }
            if sealed.is_empty() || opened.ended {
                return opened;
            }
        }
    }

    /// Encrypts the first of these bytes, unless the socket has not taken the last ones; gives what it is to take now.
    pub(super) fn seal(&mut self, bytes: &[u8]) -> &[u8] {
        if self.sealed.is_empty() {
            self.plain = bytes.len().min(SEALED_AT_ONCE);
            for piece in bytes[..self.plain].chunks(PIECE_BYTES) {
                // Neither fails: the buffer has no limit, and is written to memory.
                let _ = self.connection.writer().write_all(piece);
            }
            self.flush();
        }
        self.unsent()
    }

    /// The encrypted bytes that the socket has not taken.
    pub(super) fn unsent(&self) -> &[u8] {
        &self.sealed[self.taken..]
    }

    /// The socket has taken so many bytes. When it has taken all: how many bytes of the client protocol these were.
    pub(super) fn sent(&mut self, count: usize) -> Option<usize> {
        self.taken += count;
        if self.taken < self.sealed.len() {
            return None;
        }
        (self.sealed, self.taken) = (Vec::new(), 0);
        Some(std::mem::take(&mut self.plain))
    }

    /// Whether there is something to be sent that is not the shard's.
    pub(super) fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// The last bytes: an alert, if one is due, and the end of the connection.
    pub(super) fn end(&mut self) -> Vec<u8> {
        if !self.sealed.is_empty() {
            return Vec::new();
        }
        self.connection.send_close_notify();
        self.flush();
        std::mem::take(&mut self.sealed)
    }

    fn flush(&mut self) {
        while self.connection.wants_write() {
            let _ = self.connection.write_tls(&mut self.sealed);
        }
    }
}
