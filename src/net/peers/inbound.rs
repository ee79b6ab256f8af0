//! A connection that has not sent its handshake, or not all of it, or has not proven that it holds the secret.
//!
//! Lives on the listener's thread; never blocks. It reads no byte beyond the handshake and the proof.

use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::time::Instant;

use corral_peer::foreign::ForeignProtocol;
use corral_peer::handshake::HANDSHAKE_BYTES;
use corral_peer::secret::{NONCE_BYTES, PROOF_BYTES};
use corral_peer::{Challenge, Handshake, HandshakeError, Proof, Secret, Secrets, Transcript};

use crate::net::peers::channel::Channel;
use crate::net::peers::tls;

/// An accepted connection before its handshake and proof are complete.
pub(crate) struct Inbound {
    pub(crate) channel: Channel,
    pub(crate) from: SocketAddr,
    pub(crate) deadline: Instant,
    bytes: [u8; HANDSHAKE_BYTES],
    have: usize,
    looked: bool,
    /// Its handshake, and the messages since, once it was asked for a proof.
    asked: Option<Box<(Handshake, Transcript)>>,
}

/// A dialler that has proven that it holds a secret of this server's.
pub(crate) struct Proven {
    pub(crate) secret: Secret,
    pub(crate) said: Transcript,
}

/// How far an inbound connection has come.
pub(crate) enum Progress {
    /// More is to come.
    Waits,
    /// With the proof, where this server asks for one.
    Said(Handshake, Option<Box<Proven>>),
    /// It holds no secret of this server's.
    NotProven,
    /// Of the wrong version, in words.
    OtherVersion(String),
    /// It is to be closed, for one of a few reasons.
    Gone(&'static str),
    /// It is to be closed, for a reason in the words of TLS.
    Failed(String),
}

impl Inbound {
    pub(crate) fn new(channel: Channel, from: SocketAddr, deadline: Instant) -> Inbound {
        Inbound { channel, from, deadline, bytes: [0; HANDSHAKE_BYTES], have: 0, looked: false, asked: None }
    }

    /// Whether it has sent its handshake.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Reads what there is. With `secrets` its handshake is answered with a challenge.
    pub(crate) fn listen(&mut self, secrets: Option<&Secrets>) -> Progress {
        // Flushes bytes that did not fit into the socket. While they wait the socket is ready again and again.
        match self.channel.flush() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return Progress::Gone("its connection was lost before the handshake was answered"),
        }
        if let (Some(secrets), true) = (secrets, self.was_asked()) {
            return self.hear_proof(secrets);
        }
        if self.channel.tls().is_some() && !self.looked {
            let mut first = [0; 4];
            match self.channel.socket().peek(&mut first) {
                Ok(1..) if Handshake::may_begin_with(&first) => {
                    return Progress::Gone(
                        "it is a server that does not speak TLS, and this one does; set [ensemble] tls_cert, tls_key and \
                         tls_ca on all servers",
                    );
                }
                Ok(_) => self.looked = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waits,
                Err(_) => {}
            }
        }
        loop {
            match self.channel.read(&mut self.bytes[self.have..]) {
                Ok(0) if self.have == 0 => return Progress::Gone("it left without a handshake"),
                Ok(0) => return Progress::Gone("it left in the middle of its handshake"),
                Ok(bytes) => self.have += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waits,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    return tls::sentence(&error)
                        .map_or(Progress::Gone("it left without a handshake"), Progress::Failed);
                }
            }
            if !Handshake::may_begin_with(&self.bytes[..self.have]) {
                return Progress::Gone(strange(&self.bytes[..self.have]));
            }
            if self.have == HANDSHAKE_BYTES {
                return match Handshake::decode(&self.bytes) {
                    Ok(handshake) => match secrets {
                        None => Progress::Said(handshake, None),
                        Some(secrets) => self.challenge(handshake, secrets),
                    },
                    Err(error @ HandshakeError::Version(_)) => {
                        Progress::OtherVersion(format!("{error}; run one version of corral on all servers"))
                    }
                    Err(_) => Progress::Gone("its handshake is malformed"),
                };
            }
        }
    }

    /// Asks the sender of the handshake for a proof.
    fn challenge(&mut self, handshake: Handshake, secrets: &Secrets) -> Progress {
        let mut nonce = [0; NONCE_BYTES];
        if getrandom::fill(&mut nonce).is_err() {
            return Progress::Gone("there is no random bytes for a challenge");
        }
        let challenge = Challenge { nonce }.encode();
        // It always fits into an empty socket.
        match self.channel.write(&[IoSlice::new(&challenge)]) {
            Ok(bytes) if bytes == challenge.len() && self.channel.flush().is_ok() => {}
            _ => return Progress::Gone("its connection was lost before the handshake was answered"),
        }
        let said = Transcript { handshake: self.bytes, challenge, nonce: [0; NONCE_BYTES] };
        (self.asked, self.have) = (Some(Box::new((handshake, said))), 0);
        self.hear_proof(secrets)
    }

    fn hear_proof(&mut self, secrets: &Secrets) -> Progress {
        while self.have < PROOF_BYTES {
            match self.channel.read(&mut self.bytes[self.have..PROOF_BYTES]) {
                Ok(0) => return Progress::Gone("it left without a proof that it holds the secret; look at its log"),
                Ok(bytes) => self.have += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Waits,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Progress::Gone("it left without a proof that it holds the secret; look at its log"),
            }
        }
        let Some((handshake, mut said)) = self.asked.take().map(|asked| *asked) else {
            return Progress::Gone("its proof came before its handshake");
        };
        let proof = self.bytes.first_chunk().map(Proof::decode);
        let Some(Ok(Proof { nonce, proof })) = proof else { return Progress::Gone("its proof is malformed") };
        said.nonce = nonce;
        match secrets.proven(&said, &proof) {
            Some(secret) => Progress::Said(handshake, Some(Box::new(Proven { secret: secret.clone(), said }))),
            None => Progress::NotProven,
        }
    }
}

fn strange(bytes: &[u8]) -> &'static str {
    match ForeignProtocol::guess(bytes) {
        ForeignProtocol::Tls => {
            "it speaks TLS, and this server does not; set [ensemble] tls_cert, tls_key and tls_ca on all servers"
        }
        ForeignProtocol::Http => "it is a web client or a scanner; this port is for servers of the ensemble alone",
        ForeignProtocol::ZooKeeperElection | ForeignProtocol::ZooKeeperLearner => {
            "it is a server of ZooKeeper; ZooKeeper and corral cannot be of one ensemble"
        }
        ForeignProtocol::ZooKeeperClient => "it is a client; clients connect to the client port",
        ForeignProtocol::Unknown => "it does not speak the protocol between servers",
    }
}
