//! One connection to one server: TCP or TLS, frames, and the handshake that opens or resumes a session.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use corral_core::shard::sasl;
use corral_wire::frame::{append_frame, next_frame};
use corral_wire::records::{
    ConnectRequest, ConnectResponse, GetSaslRequest, ReplyHeader, RequestHeader, SetSaslResponse,
};
use corral_wire::{ErrorCode, OpCode, Reader, Writer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::Error;

/// Of one answer. A list of a million children has some 30 MB.
const REPLY_BYTES_MAX: usize = 256 << 20;
/// Read from the socket at once.
const READ_BYTES: usize = 64 << 10;
/// Of a session's password.
const PASSWORD_BYTES: usize = 16;

/// A user of SASL with DIGEST-MD5.
#[derive(Clone)]
pub struct Credentials {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// All that a server needs to open or resume a session.
#[derive(Clone, Copy)]
pub(crate) struct Handshake {
    /// 0 for a new one.
    pub(crate) id: i64,
    pub(crate) password: [u8; PASSWORD_BYTES],
    pub(crate) timeout: Duration,
    pub(crate) last_zxid: i64,
    pub(crate) read_only: bool,
}

/// The answer of a server.
pub(crate) struct Granted {
    pub(crate) id: i64,
    pub(crate) password: [u8; PASSWORD_BYTES],
    pub(crate) timeout: Duration,
    pub(crate) is_read_only: bool,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connected socket with the bytes to send, and the bytes received.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    input: BytesMut,
    output: BytesMut,
    unflushed: bool,
}

impl Connection {
    /// Connects to one server.
    pub(crate) async fn open(host: &str, port: u16, tls: Option<Arc<ClientConfig>>) -> Result<Connection, Error> {
        let failed = |error: io::Error| Error::new(ErrorCode::ConnectionLoss, format!("{host}:{port}: {error}"));
        let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(config) => {
                let name = ServerName::try_from(host.to_owned())
                    .map_err(|_| failed(io::Error::other("the host is no name of a certificate")))?;
                let refused = |error: io::Error| failed(io::Error::other(format!("TLS failed: {error}")));
                Box::new(TlsConnector::from(config).connect(name, stream).await.map_err(refused)?)
            }
        };
        Ok(Connection { stream, input: BytesMut::new(), output: BytesMut::new(), unflushed: false })
    }

    /// Opens or resumes a session.
    ///
    /// # Errors
    /// `SessionExpired` if the server does not know the session any more.
    pub(crate) async fn shake_hands(&mut self, handshake: &Handshake) -> Result<Granted, Error> {
        let milliseconds = i32::try_from(handshake.timeout.as_millis()).unwrap_or(i32::MAX);
        self.send(|writer| {
            ConnectRequest {
                protocol_version: 0,
                last_zxid_seen: handshake.last_zxid,
                timeout_ms: milliseconds,
                session_id: handshake.id,
                passwd: Some(&handshake.password),
                read_only: Some(handshake.read_only),
            }
            .encode(writer);
        })?;
        let frame = self.exchange().await?;
        let response = ConnectResponse::decode(&mut Reader::new(&frame))?;
        let milliseconds = u64::try_from(response.timeout_ms).unwrap_or_default();
        if milliseconds == 0 {
            return Err(ErrorCode::SessionExpired.into());
        }
        let password = response.passwd.and_then(|bytes| <[u8; PASSWORD_BYTES]>::try_from(bytes).ok());
        let password = password
            .ok_or_else(|| Error::new(ErrorCode::MarshallingError, "the server gave a password of another length"))?;
        Ok(Granted {
            id: response.session_id,
            password,
            timeout: Duration::from_millis(milliseconds),
            is_read_only: response.read_only == Some(true),
        })
    }

    /// Proves the user to the server, and lets the server prove that it knows the user.
    ///
    /// # Errors
    /// `AuthFailed` if one of both fails.
    pub(crate) async fn authenticate(&mut self, user: &Credentials, xid: &mut i32) -> Result<(), Error> {
        let failed = |reason: &str| Error::new(ErrorCode::AuthFailed, format!("SASL: {reason}"));
        let challenge = self.sasl_step(&[], xid).await?;
        let challenge = challenge.ok_or_else(|| failed("the server has no users of DIGEST-MD5"))?;
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| failed(&format!("no random numbers: {error}")))?;
        let answer = sasl::respond(&challenge, &user.user, &user.password, &nonce);
        let answer = answer.ok_or_else(|| failed("the server's challenge is not DIGEST-MD5"))?;
        let proof = self.sasl_step(answer.token.as_bytes(), xid).await?;
        if proof.as_deref() == Some(answer.proof.as_bytes()) {
            Ok(())
        } else {
            Err(failed("user or password is refused"))
        }
    }

    async fn sasl_step(&mut self, token: &[u8], xid: &mut i32) -> Result<Option<Vec<u8>>, Error> {
        *xid += 1;
        let sent = *xid;
        self.send(|writer| {
            RequestHeader { xid: sent, op: OpCode::Sasl.number() }.encode(writer);
            GetSaslRequest { token: Some(token) }.encode(writer);
        })?;
        let frame = self.exchange().await?;
        let reader = &mut Reader::new(&frame);
        let header = ReplyHeader::decode(reader)?;
        if header.err != 0 {
            return Err(Error::new(ErrorCode::AuthFailed, format!("SASL: {}", Error::of_answer(header.err))));
        }
        Ok(SetSaslResponse::decode(reader)?.token.map(<[u8]>::to_vec))
    }

    /// Adds a frame to the output.
    pub(crate) fn send(&mut self, encode: impl FnOnce(&mut Writer<'_>)) -> Result<(), Error> {
        let mut frame = Vec::new();
        let framed = append_frame(&mut frame, encode);
        framed.map_err(|error| Error::new(ErrorCode::BadArguments, error.to_string()))?;
        self.output.extend_from_slice(&frame);
        Ok(())
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Sends what waits, until a frame has come. May be dropped and called again.
    pub(crate) async fn exchange(&mut self) -> Result<BytesMut, Error> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(frame);
            }
            self.progress().await.map_err(|error| Error::new(ErrorCode::ConnectionLoss, error.to_string()))?;
        }
    }

    async fn progress(&mut self) -> io::Result<()> {
        self.input.reserve(READ_BYTES);
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        let has_output = !self.output.is_empty();
        tokio::select! {
            read = reader.read_buf(&mut self.input) => match read? {
                0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
                _ => Ok(()),
            },
            unflushed = async {
                if has_output { writer.write_buf(&mut self.output).await.map(|_| true) } else { writer.flush().await.map(|()| false) }
            }, if has_output || self.unflushed => {
                self.unflushed = unflushed?;
                Ok(())
            }
        }
    }

    fn take_frame(&mut self) -> Result<Option<BytesMut>, Error> {
        let found = next_frame(&self.input, REPLY_BYTES_MAX).map_err(|error| {
            let reason = match &self.input[..] {
                // An alert of TLS.
                [0x15, 3, ..] => "it wants TLS; give --ca".to_owned(),
                [b'H', b'T', b'T', b'P', ..] => "it speaks HTTP; give the port for clients".to_owned(),
                _ => error.to_string(),
            };
            Error::new(ErrorCode::MarshallingError, reason)
        })?;
        let Some((body, used)) = found.map(|(body, used)| (body.len(), used)) else { return Ok(None) };
        let mut frame = self.input.split_to(used);
        frame.advance(used - body);
        Ok(Some(frame))
    }
}
