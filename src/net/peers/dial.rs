//! One dial: the name resolved anew, the addresses tried in turn, TLS, handshake and answer.
//!
//! Lives on a sender's thread, which it blocks: the resolver and each connect take their time. It decides nothing about
//! when to dial again.

use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use corral_consensus::ServerId;
use corral_engine::PeerAddress;
use corral_peer::foreign::ForeignProtocol;
use corral_peer::handshake::ANSWER_BYTES;
use corral_peer::secret::{NONCE_BYTES, SEAL_BYTES, token};
use corral_peer::{
    Admission, Answer, Challenge, ClusterName, FrameKey, Handshake, HandshakeError, Proof, Secrets, Transcript,
};

use crate::net::peers::channel::{Channel, tune, wait};
use crate::net::peers::generations::Generations;
use crate::net::peers::limits::{ADDRESSES_MAX, CONNECT_MAX, FORMER_MAX, HANDSHAKE_MAX};
use crate::net::peers::outbox::PeerOutbox;
use crate::net::peers::tls::{self, Tls};

/// Turns a host and port into addresses; may block.
pub(crate) type Resolve = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The system's resolver.
pub(crate) fn system_resolver() -> Resolve {
    Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
}

/// Former addresses of a peer, which are dialled too. The peer may learn of its move by these connections alone, and
/// may be unable to listen at its new address.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormerAddresses {
    /// Where the list said before, newest first.
    pub(crate) former: Vec<PeerAddress>,
    /// Where a dial found it last. Written by the one sender of the peer, and held for no longer than a copy takes.
    pub(crate) reached: Arc<Mutex<Option<PeerAddress>>>,
}

impl FormerAddresses {
    /// The list said `last` until now, and says `present` from now on.
    pub(crate) fn add(&mut self, last: PeerAddress, present: Option<&PeerAddress>) {
        self.former.retain(|address| *address != last);
        self.former.insert(0, last);
        self.former.retain(|address| Some(address) != present);
        self.former.truncate(FORMER_MAX);
    }

    fn reached(&self) -> Option<PeerAddress> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The settings of a dial.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) own: ServerId,
    pub(crate) incarnation: u64,
    /// Of this process's tokens.
    pub(crate) seed: [u8; SEAL_BYTES],
    pub(crate) cluster: ClusterName,
    pub(crate) generations: Arc<Generations>,
    /// Where the list says that it is.
    pub(crate) peer: PeerAddress,
    pub(crate) former_addresses: FormerAddresses,
    /// Where this server's configuration says that it is.
    pub(crate) configured: Option<PeerAddress>,
    pub(crate) tls: Option<Tls>,
    /// The secrets that both sides prove to hold.
    pub(crate) secrets: Option<Arc<Secrets>>,
    /// As of the settings.
    pub(crate) plaintext: bool,
    pub(crate) resolve: Resolve,
}

/// The text about a host for which [`exposes`] is true.
pub(crate) const EXPOSED: &str = "the messages of the servers would cross the network unencrypted; set ensemble.tls_cert, \
                                  tls_key and tls_ca, or both ensemble.secret_file and ensemble.allow_plaintext = true";

/// Whether connections with these settings must not use that address. It is the rule of the configuration, for names
/// that are resolved and a list that changes. `plaintext`: with a secret, and consent to unencrypted messages.
pub(crate) fn exposes(tls: Option<&Tls>, plaintext: bool, address: IpAddr) -> bool {
    tls.is_none() && !plaintext && !address.to_canonical().is_loopback()
}

/// A connection with a welcomed handshake.
pub(crate) struct Dialled {
    /// Does not wait.
    pub(crate) channel: Channel,
    /// Of its frames, where both sides have proven that they hold the secret.
    pub(crate) key: Option<FrameKey>,
}

/// Why a dial failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The failure and, where it is known, the remedy.
    pub(crate) words: String,
    /// As where the peer's process does not run, or has just ended.
    pub(crate) is_ordinary: bool,
    /// The peer's list of servers lacks this one: it waits for a reconfig.
    pub(crate) is_unlisted: bool,
    /// No name of the peer resolved.
    pub(crate) is_unresolved: bool,
}

impl From<String> for Failure {
    fn from(words: String) -> Failure {
        Failure { words, is_ordinary: false, is_unlisted: false, is_unresolved: false }
    }
}

impl Failure {
    fn at(self, address: SocketAddr) -> Failure {
        Failure { words: format!("{address}: {}", self.words), ..self }
    }
}

impl Dialler {
    /// A connection with a welcomed handshake. It ends early when the outbox is stopped, but not while the name is
    /// resolved.
    ///
    /// # Errors
    /// Words, of the last address that its present name has, that says what failed and, where it is known, what to do.
    pub(crate) fn dial(&self, outbox: &PeerOutbox) -> Result<Dialled, Failure> {
        let mut first: Option<Failure> = None;
        for place in self.places() {
            match self.dial_at(&place, outbox) {
                Ok(done) => {
                    *self.former_addresses.reached.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
                    return Ok(done);
                }
                Err(reason) => match &mut first {
                    Some(first) => first.is_unresolved &= reason.is_unresolved,
                    first @ None => *first = Some(reason),
                },
            }
            if outbox.is_stopping() {
                break;
            }
        }
        Err(first.expect("there is a place at least"))
    }

    /// The addresses at which the peer is dialled, in this order. First that of the list, then where it was found last,
    /// then former ones of the list, then that of the configuration.
    fn places(&self) -> Vec<PeerAddress> {
        let mut places = vec![self.peer.clone()];
        let more = self.former_addresses.reached().into_iter().chain(self.former_addresses.former.iter().cloned());
        for place in more.chain(self.configured.clone()) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    fn dial_at(&self, peer: &PeerAddress, outbox: &PeerOutbox) -> Result<Dialled, Failure> {
        let PeerAddress { host, port, .. } = peer;
        let unresolved = |words: String| Failure { is_unresolved: true, ..Failure::from(words) };
        let found = (self.resolve)(host, *port).map_err(|error| {
            unresolved(format!("the name {host:?} does not resolve: {error}; correct it or its DNS entry"))
        })?;
        let mut last = unresolved(format!("the name {host:?} resolves to nothing; correct it or its DNS entry"));
        for address in found.into_iter().take(ADDRESSES_MAX) {
            if exposes(self.tls.as_ref(), self.plaintext, address.ip()) {
                last = format!("{} is another host: {EXPOSED}", address.ip()).into();
                continue;
            }
            let connected = connect(address).map_err(|error| Failure {
                is_ordinary: error.kind() == ErrorKind::ConnectionRefused,
                ..Failure::from(refused(&error))
            });
            let done = connected.and_then(|socket| self.greet(peer, socket, outbox));
            match done {
                Ok(connection) => return Ok(connection),
                Err(failure) => last = failure.at(address),
            }
            if outbox.is_stopping() {
                break;
            }
        }
        Err(last)
    }

    fn greet(&self, peer: &PeerAddress, socket: TcpStream, outbox: &PeerOutbox) -> Result<Dialled, Failure> {
        let tls = match &self.tls {
            Some(tls) => Some(tls.dial(peer)?),
            None => None,
        };
        let (mut channel, deadline) = (Channel::new(socket, tls), Instant::now() + HANDSHAKE_MAX);
        while let Err(error) = channel.shake_hands() {
            self.wait(&channel, &error, channel.wants_write(), deadline, outbox)?;
        }
        if let Some(connection) = channel.tls() {
            tls::is_for(connection, peer)?;
        }
        let (from, to) = (wire_id(self.own), wire_id(peer.id));
        let (cluster, generation) = (self.cluster.clone(), self.generations.own());
        let handshake =
            Handshake { cluster, from, to, generation, incarnation: self.incarnation, token: token(&self.seed, to) };
        let handshake = handshake.encode();
        let mut bytes = self.ask(&mut channel, &handshake, deadline, outbox)?;
        let mut key = None;
        match (&self.secrets, Challenge::decode(&bytes)) {
            (Some(secrets), Ok(_)) => {
                let said = Transcript { handshake, challenge: bytes, nonce: nonce()? };
                (bytes, key) = self.prove(secrets, &said, &mut channel, deadline, outbox)?;
            }
            (None, Ok(_)) => {
                return Err("it asks for a secret, and this server has none; set ensemble.secret_file"
                    .to_owned()
                    .into());
            }
            (Some(_), Err(_))
                if Answer::decode(&bytes).is_ok_and(|answer| answer.verdict != Admission::WrongVersion) =>
            {
                let words = "it asks for no secret, and this server has one; set ensemble.secret_file on all servers";
                return Err(words.to_owned().into());
            }
            _ => {}
        }
        let answer = Answer::decode(&bytes).map_err(|error| match error {
            HandshakeError::Magic => unanswered(&bytes, channel.tls().is_some()),
            error => format!("the answer is bad: {error}; run one version of corral on all servers"),
        })?;
        self.judge(peer, &answer)?;
        Ok(Dialled { channel, key })
    }

    /// Checks whether the answer admits the connection.
    fn judge(&self, peer: &PeerAddress, answer: &Answer) -> Result<(), Failure> {
        let to = wire_id(peer.id);
        if matches!(answer.verdict, Admission::WrongServer | Admission::Welcome) && answer.id != to && answer.id != 0 {
            let words = format!(
                "there is server {}, not server {to}; correct the address of server {to} here, or the id there",
                answer.id
            );
            return Err(words.into());
        }
        if matches!(answer.verdict, Admission::Welcome | Admission::WrongGeneration)
            && answer.id == to
            && let Some(reason) = self.generations.meet(peer.id, answer.generation)
        {
            return Err(reason.to_owned().into());
        }
        refusal(answer.verdict, self.own, &self.cluster).map_or(Ok(()), |reason| {
            Err(Failure {
                is_ordinary: matches!(answer.verdict, Admission::Busy | Admission::Duplicate),
                is_unlisted: answer.verdict == Admission::NotConfigured,
                ..Failure::from(reason)
            })
        })
    }

    /// Says something and reads as much as an answer has.
    fn ask(
        &self,
        channel: &mut Channel,
        said: &[u8],
        deadline: Instant,
        outbox: &PeerOutbox,
    ) -> Result<[u8; ANSWER_BYTES], Failure> {
        let mut bytes = [0; ANSWER_BYTES];
        let have = self.exchange(channel, said, &mut bytes, deadline, outbox)?;
        if have < ANSWER_BYTES {
            let words = unanswered(&bytes[..have], channel.tls().is_some());
            return Err(Failure { is_ordinary: have == 0, ..Failure::from(words) });
        }
        Ok(bytes)
    }

    /// Both sides prove that they hold the secret, this one first: the answer, and the key of the frames.
    fn prove(
        &self,
        secrets: &Secrets,
        said: &Transcript,
        channel: &mut Channel,
        deadline: Instant,
        outbox: &PeerOutbox,
    ) -> Result<([u8; ANSWER_BYTES], Option<FrameKey>), Failure> {
        let secret = secrets.first();
        let proof = Proof { nonce: said.nonce, proof: secret.prove(said) }.encode();
        let answer = self.ask(channel, &proof, deadline, outbox)?;
        if Answer::decode(&answer).is_ok_and(|answer| answer.verdict == Admission::NotProven) {
            return Ok((answer, None));
        }
        let mut seal = [0; SEAL_BYTES];
        let have = self.exchange(channel, &[], &mut seal, deadline, outbox)?;
        if have < SEAL_BYTES || !secret.is_sealed(said, &answer, &seal) {
            let words = "it does not hold this ensemble's secret; give all servers the same ensemble.secret_file, or \
                         stop the other program there";
            return Err(words.to_owned().into());
        }
        Ok((answer, Some(secret.frame_key(said, &answer))))
    }

    /// Writes the handshake and reads the answer, or the part of it that arrived before the connection ended.
    fn exchange(
        &self,
        channel: &mut Channel,
        handshake: &[u8],
        answer: &mut [u8],
        deadline: Instant,
        outbox: &PeerOutbox,
    ) -> Result<usize, Failure> {
        let (mut written, mut have) = (0, 0);
        while have < answer.len() {
            let done = if written < handshake.len() {
                channel.write(&[IoSlice::new(&handshake[written..])]).map(|bytes| written += bytes)
            } else {
                match channel.read(&mut answer[have..]) {
                    Ok(0) => break,
                    read => read.map(|bytes| have += bytes),
                }
            };
            if let Err(error) = done {
                let to_write = written < handshake.len() || channel.wants_write();
                self.wait(channel, &error, to_write, deadline, outbox)?;
            }
        }
        Ok(have)
    }

    /// Waits until what would block need not any more; any other error is one.
    fn wait(
        &self,
        channel: &Channel,
        error: &io::Error,
        to_write: bool,
        deadline: Instant,
        outbox: &PeerOutbox,
    ) -> Result<(), Failure> {
        match error.kind() {
            ErrorKind::Interrupted => return Ok(()),
            ErrorKind::WouldBlock => {}
            _ => return Err(broken(error, channel.tls().is_some())),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let words = "it does not answer the handshake; check that it is a server of this version";
            return Err(words.to_owned().into());
        }
        wait(channel.socket(), to_write, outbox.bell.outer(), Some(left)).map_err(|error| error.to_string())?;
        if outbox.is_stopping() {
            return Err("this server stops".to_owned().into());
        }
        Ok(())
    }
}

fn nonce() -> Result<[u8; NONCE_BYTES], String> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| format!("there is no random bytes: {error}"))?;
    Ok(nonce)
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, CONNECT_MAX)?;
    // If no process listens at an address of this host, the kernel may join the two ends of one socket.
    if socket.local_addr()? == socket.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    tune(&socket)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn refused(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused; start that server, or correct its address".to_owned(),
        ErrorKind::TimedOut => "its host does not answer; look at the host, the network and its filters".to_owned(),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            "no way leads to its host now; look at the network".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The connection failed before the answer. As with a peer that closes it, the peer's process may have just ended.
fn broken(error: &io::Error, encrypted: bool) -> Failure {
    let is_closed =
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe);
    match tls::sentence(error) {
        Some(sentence) => sentence.into(),
        None if is_closed => Failure { is_ordinary: true, ..Failure::from(unanswered(&[], encrypted)) },
        None => error.to_string().into(),
    }
}

/// The error if the connection ended, or other bytes came, in place of an answer.
fn unanswered(found: &[u8], encrypted: bool) -> String {
    match (ForeignProtocol::guess(found), found.is_empty(), encrypted) {
        // An alert of TLS.
        _ if found.starts_with(&[0x15, 0x03]) => {
            "it speaks TLS, and this server does not; set [ensemble] tls_cert, tls_key and tls_ca on all servers"
                .to_owned()
        }
        (_, true, true) => {
            "it closed the connection instead of speaking TLS: it has just ended, or its log says why; set [ensemble] \
             tls_cert, tls_key and tls_ca on all servers"
                .to_owned()
        }
        (_, true, false) => {
            "it closed the connection instead of answering: it has just ended, or its log says why".to_owned()
        }
        (ForeignProtocol::Http, ..) => "a web server listens there; correct the address".to_owned(),
        _ => "it does not speak the protocol between servers; correct the address".to_owned(),
    }
}

/// As handshakes and answers have it.
pub(crate) fn wire_id(id: ServerId) -> u8 {
    id.0
}

fn refusal(verdict: Admission, own: ServerId, cluster: &ClusterName) -> Option<String> {
    Some(match verdict {
        Admission::Welcome => return None,
        Admission::WrongCluster => {
            format!("it is not of the cluster {cluster}; give all servers of an ensemble the same ensemble.cluster")
        }
        Admission::WrongServer => "it is another server; correct its address or id".to_owned(),
        Admission::NotConfigured => {
            format!(
                "its list of servers lacks server {}; add it with reconfig, or give all servers the same list",
                own.0
            )
        }
        Admission::Duplicate => format!(
            "another process with the id {} is connected to it; look for a second server with this id (after the \
             loss of a host it takes some seconds)",
            own.0
        ),
        Admission::Busy => "it is still busy with this server's last connection".to_owned(),
        Admission::WrongCertificate => format!(
            "this server's certificate is not for the host that server {} is configured with there; correct the \
             certificate's names or the membership",
            own.0
        ),
        Admission::WrongVersion => {
            "it speaks another version of the protocol; run one version of corral on all servers".to_owned()
        }
        Admission::NotProven => {
            "it does not accept this server's secret; give all servers the same ensemble.secret_file".to_owned()
        }
        // It was told what this one held before, and is told again.
        Admission::WrongGeneration => "this server's data were of another generation than its own".to_owned(),
    })
}
