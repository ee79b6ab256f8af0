//! Servers that share a secret, and the result for a server without it: a challenge, and nothing else.

use super::*;
use corral_peer::handshake::{ANSWER_BYTES, HANDSHAKE_BYTES};
use corral_peer::secret::{CHALLENGE_BYTES, NONCE_BYTES, SEAL_BYTES};
use corral_peer::{Challenge, FrameError, FrameKey, Header, Proof, Secret, Secrets, Transcript};

fn text(byte: u8) -> String {
    char::from(byte).to_string().repeat(32)
}

fn secrets(bytes: &[u8]) -> Option<Arc<Secrets>> {
    let lines: Vec<String> = bytes.iter().map(|byte| text(*byte)).collect();
    Some(Arc::new(Secrets::of_text(lines.join("\n").as_bytes()).expect("they are long enough")))
}

fn secret(byte: u8) -> Secret {
    Secret::new(text(byte).as_bytes()).expect("it is long enough")
}

fn handshake() -> [u8; HANDSHAKE_BYTES] {
    super::handshake().encode()
}

/// A server 1 with that secret, which no server answers.
fn server() -> Server {
    Server::start(1, 11, listener(), vec![address(2, 1)], |settings| settings.secrets = secrets(b"a"))
}

/// Says handshake and gets the challenge.
fn challenged(port: u16) -> (TcpStream, Transcript) {
    let mut socket = connected(port);
    socket.write_all(&handshake()).expect("it listens");
    let mut challenge = [0; CHALLENGE_BYTES];
    socket.read_exact(&mut challenge).expect("a challenge");
    Challenge::decode(&challenge).expect("a challenge");
    (socket, Transcript { handshake: handshake(), challenge, nonce: [7; NONCE_BYTES] })
}

/// Proves itself as server 2 does.
fn proven(port: u16) -> (TcpStream, FrameKey) {
    let (mut socket, said) = challenged(port);
    socket.write_all(&Proof { nonce: said.nonce, proof: secret(b'a').prove(&said) }.encode()).expect("it listens");
    let (mut answer, mut seal) = ([0; ANSWER_BYTES], [0; SEAL_BYTES]);
    socket.read_exact(&mut answer).expect("an answer");
    socket.read_exact(&mut seal).expect("a seal");
    assert_eq!(Answer::decode(&answer).map(|answer| answer.verdict), Ok(Admission::Welcome));
    assert!(secret(b'a').is_sealed(&said, &answer, &seal));
    (socket, secret(b'a').frame_key(&said, &answer))
}

#[test]
fn servers_with_one_secret_connect_and_their_frames_arrive() {
    let (first, second) = pair(|settings| settings.secrets = secrets(b"a"));
    for length in [0, 1, 20_000, 300_000] {
        first.send(2, Kind::Raft, &vec![7; length]).expect("there is room");
        assert_eq!(second.frames(1)[0].1.len(), length);
    }
    until("everything is written", || first.connections.stats()[0].queued_messages == 0);
    assert_eq!(first.connections.stats()[0].queued_bytes, 0);
}

#[test]
fn a_secret_is_changed_without_a_stop() {
    for (one, other) in [(&b"a"[..], &b"ab"[..]), (b"ab", b"ba"), (b"b", b"ba")] {
        let (first, second) = (listener(), listener());
        let peers = vec![address(1, port(&first)), address(2, port(&second))];
        let first = Server::start(1, 11, first, peers.clone(), |settings| settings.secrets = secrets(one));
        let second = Server::start(2, 22, second, peers, |settings| settings.secrets = secrets(other));
        assert_eq!((first.both_up(), second.both_up()), (22, 11));
    }
}

#[test]
fn another_secret_or_none_is_refused_and_both_logs_say_why() {
    let check = |own: Option<Arc<Secrets>>, others: Option<Arc<Secrets>>, at_one: &str, at_other: &str| {
        let (first, second) = (listener(), listener());
        let peers = vec![address(1, port(&first)), address(2, port(&second))];
        let (at_first, at_second) = (port(&first).to_string(), port(&second).to_string());
        let first = Server::start(1, 11, first, peers.clone(), |settings| settings.secrets = own);
        let second = Server::start(2, 22, second, peers, |settings| settings.secrets = others);
        logged(&["the peer is not reached", &at_second, at_one]);
        logged(&["the peer is not reached", &at_first, at_other]);
        // A server without a secret accepts any server, and receives nothing.
        assert!(first.events.is_empty());
        assert!(!second.events.try_iter().any(|event| matches!(event, ConnectionEvent::Frames { .. })));
    };
    let wrong = "it does not accept this server's secret; give all servers the same ensemble.secret_file";
    check(secrets(b"a"), secrets(b"b"), wrong, wrong);
    check(
        secrets(b"a"),
        None,
        "it asks for no secret, and this server has one",
        "it asks for a secret, and this server has none",
    );
    logged(&["is refused", "it does not hold this ensemble's secret"]);
}

#[test]
fn nothing_but_a_challenge_is_told_without_the_secret() {
    let server = server();
    let (mut held, key) = proven(server.port);
    let (stream, incarnation) = server.up(Direction::In);
    assert_eq!(incarnation, 22);
    // Handshakes of any kind, also a copy of the welcomed one: the answer does not depend on them.
    let changes: [&dyn Fn(&mut Handshake); 5] = [
        &|_| (),
        &|handshake| handshake.cluster = ClusterName::new("blue").expect("a name"),
        &|handshake| handshake.from = 9,
        &|handshake| handshake.to = 3,
        &|handshake| handshake.generation = Generation(u64::MAX - 1),
    ];
    for change in changes {
        let mut handshake = Handshake::decode(&handshake()).expect("a handshake");
        change(&mut handshake);
        let mut socket = connected(server.port);
        socket.write_all(&handshake.encode()).expect("it listens");
        socket.write_all(&Proof { nonce: [1; NONCE_BYTES], proof: [2; SEAL_BYTES] }.encode()).expect("it listens");
        let mut told = Vec::new();
        socket.read_to_end(&mut told).expect("it is closed");
        let (challenge, answer) = told.split_first_chunk::<CHALLENGE_BYTES>().expect("a challenge");
        assert!(Challenge::decode(challenge).is_ok());
        let answer = Answer::decode(answer.try_into().expect("an answer and nothing else")).expect("an answer");
        assert_eq!(answer, Answer { verdict: Admission::NotProven, id: 0, generation: Generation::NONE });
    }
    // Frames in the place of a proof are never delivered.
    let (mut socket, _) = challenged(server.port);
    for sequence in 0..4 {
        socket.write_all(&Header::encode(Kind::Raft, sequence, &[0; 64])).expect("it listens");
        let _ = socket.write_all(&[0; 64]);
    }
    assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)));
    // The proof of one connection on another.
    let (mut first, said) = challenged(server.port);
    let (mut second, _) = challenged(server.port);
    let proof = Proof { nonce: said.nonce, proof: secret(b'a').prove(&said) }.encode();
    second.write_all(&proof).expect("it listens");
    let mut answer = [0; ANSWER_BYTES];
    second.read_exact(&mut answer).expect("an answer");
    assert_eq!(Answer::decode(&answer).map(|answer| answer.verdict), Ok(Admission::NotProven));
    drop(first.write_all(&[0; 10]));
    assert!(server.events.is_empty(), "the connection of the server stands, and nothing was heard");
    let mut header = Vec::new();
    key.seal(Kind::Raft, 0, b"still here", &mut header);
    held.write_all(&header).expect("it stands");
    assert_eq!(server.frames(1)[0].1, "still here");
    // Injected bytes end it.
    held.write_all(&header).expect("it stands");
    assert_eq!(server.down(Direction::In), Reason::Bad(FrameError::Sequence { expected: 1, found: 0 }));
    assert!(stream > 0);
}

#[test]
fn who_listens_without_the_secret_gets_no_frame() {
    let fake = Fake { listener: listener() };
    let peers = vec![address(2, port(&fake.listener))];
    let server = Server::start(1, 11, listener(), peers, |settings| settings.secrets = secrets(b"a"));
    // Welcomed at once.
    let (mut socket, _) = fake.listener.accept().expect("it dials");
    socket.read_exact(&mut [0; HANDSHAKE_BYTES]).expect("it sends its handshake");
    fake.answer(&mut socket, Admission::Welcome);
    assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)));
    logged(&["it asks for no secret, and this server has one", &port(&fake.listener).to_string()]);
    // Asked, and welcomed with its own proof as a seal; then told that it is outdated.
    for verdict in [Admission::Welcome, Admission::WrongGeneration] {
        let (mut socket, _) = fake.listener.accept().expect("it dials again");
        socket.read_exact(&mut [0; HANDSHAKE_BYTES]).expect("it sends its handshake");
        socket.write_all(&Challenge { nonce: [5; NONCE_BYTES] }.encode()).expect("it listens");
        let mut proof = [0; corral_peer::secret::PROOF_BYTES];
        socket.read_exact(&mut proof).expect("it proves itself");
        let proof = Proof::decode(&proof).expect("a proof");
        let answer = Answer { verdict, id: 2, generation: Generation(u64::MAX - 1) };
        socket.write_all(&answer.encode()).expect("it listens");
        socket.write_all(&proof.proof).expect("it listens");
        assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)));
    }
    logged(&["it does not hold this ensemble's secret", &port(&fake.listener).to_string()]);
    assert!(server.events.is_empty());
}

#[test]
fn a_later_generation_that_nobody_proves_stops_no_server() {
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let generations = Generations::new(Generation::FIRST, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let server =
        Server::start(1, 11, listener(), vec![address(2, 1)], |settings| settings.generations = Arc::new(generations));
    let (_socket, answer) = knock(server.port, |handshake| handshake.generation = Generation(u64::MAX - 1));
    assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::WrongGeneration));
    logged(&["has not proven which server it is"]);
    assert_eq!(told.load(Ordering::Relaxed), 0);
}

#[test]
fn without_a_secret_rejections_tell_nothing_that_opens_a_connection() {
    let server = Server::start(1, 11, listener(), vec![address(2, 1)], |_| ());
    let (_held, answer) = knock(server.port, |_| ());
    assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::Welcome));
    server.up(Direction::In);
    let blue = ClusterName::new("blue").expect("a name");
    let check = |change: &dyn Fn(&mut Handshake), verdict: Admission| {
        let (_, answer) = knock(server.port, change);
        assert_eq!(answer, Some(Answer { verdict, id: 0, generation: Generation::NONE }));
    };
    check(&|handshake| handshake.from = 9, Admission::NotConfigured);
    check(&|handshake| handshake.to = 3, Admission::WrongServer);
    check(&|handshake| handshake.cluster = blue.clone(), Admission::WrongCluster);
    // A host that knows the incarnation, which the log entries hold, still lacks the token.
    check(&|handshake| handshake.token = [0; 7], Admission::Duplicate);
    check(&|handshake| handshake.incarnation = 11, Admission::Duplicate);
    assert!(server.events.is_empty());
}

#[test]
fn many_handshakes_do_not_keep_the_peer_out() {
    let server = server();
    let mut strangers = std::collections::VecDeque::new();
    for at in 0..2000 {
        let mut socket = connected(server.port);
        socket.write_all(&handshake()).expect("it listens");
        strangers.push_back(socket);
        if strangers.len() > 300 {
            strangers.pop_front();
        }
        if at % 400 == 399 {
            let (socket, _) = proven(server.port);
            server.up(Direction::In);
            drop(socket);
            server.down(Direction::In);
        }
    }
}
