//! The two records without a header: the first frame of a connection and its answer.
//!
//! Both may lack their last byte: clients before 3.4 do not send `readOnly` and must not be sent it. Any core.
//! Knows nothing of sessions.

use crate::error::DecodeError;
use crate::jute::{Reader, Writer};

/// The first frame of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectRequest<'a> {
    /// 0; ignored by servers.
    pub protocol_version: i32,
    /// The highest zxid the client has seen in any reply.
    pub last_zxid_seen: i64,
    /// The session timeout asked for, ms.
    pub timeout_ms: i32,
    /// 0 for a new session, else the session to resume.
    pub session_id: i64,
    /// The session's password; 16 zero bytes, empty or null for a new one.
    pub passwd: Option<&'a [u8]>,
    /// Whether a read-only server will do; `None` if the byte is missing.
    pub read_only: Option<bool>,
}

impl<'a> ConnectRequest<'a> {
    /// Decodes the record from the front of `reader`.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a record; only the last byte may be missing.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: reader.i32()?,
            last_zxid_seen: reader.i64()?,
            timeout_ms: reader.i32()?,
            session_id: reader.i64()?,
            passwd: reader.buffer()?,
            read_only: reader.bool().ok(),
        })
    }

    /// Appends the record.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        writer.i32(self.protocol_version);
        writer.i64(self.last_zxid_seen);
        writer.i32(self.timeout_ms);
        writer.i64(self.session_id);
        writer.buffer(self.passwd);
        if let Some(read_only) = self.read_only {
            writer.bool(read_only);
        }
    }
}

/// The answer to a `ConnectRequest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectResponse<'a> {
    /// 0.
    pub protocol_version: i32,
    /// The session timeout granted, ms; 0 = the session is expired or the password wrong.
    pub timeout_ms: i32,
    /// The session; 0 if expired.
    pub session_id: i64,
    /// The session's password, 16 bytes; zeroes if expired.
    pub passwd: Option<&'a [u8]>,
    /// Whether the server is read-only; to be sent only if the request had the byte.
    pub read_only: Option<bool>,
}

impl<'a> ConnectResponse<'a> {
    /// Decodes the record from the front of `reader`.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not such a record; only the last byte may be missing.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            protocol_version: reader.i32()?,
            timeout_ms: reader.i32()?,
            session_id: reader.i64()?,
            passwd: reader.buffer()?,
            read_only: reader.bool().ok(),
        })
    }

    /// Appends the record.
    pub fn encode(&self, writer: &mut Writer<'_>) {
        writer.i32(self.protocol_version);
        writer.i32(self.timeout_ms);
        writer.i64(self.session_id);
        writer.buffer(self.passwd);
        if let Some(read_only) = self.read_only {
            writer.bool(read_only);
        }
    }
}
