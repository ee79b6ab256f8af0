//! The possible actions of a stranger that reaches the port: noise at every place of a stream, silence, many
//! connections, other protocols.

use super::*;
use corral_peer::{FrameError, Header};

/// A handshake and some frames as server 2 sends them, and where the frames begin.
fn stream() -> (Vec<u8>, usize) {
    let handshake = handshake();
    let mut bytes = handshake.encode().to_vec();
    let begin = bytes.len();
    for (sequence, (kind, payload)) in
        (0..).zip([(Kind::Raft, &b"abc"[..]), (Kind::Heartbeat, b""), (Kind::Forward, &[7; 40])])
    {
        bytes.extend_from_slice(&Header::encode(kind, sequence, payload));
        bytes.extend_from_slice(payload);
    }
    (bytes, begin)
}

fn server() -> Server {
    // No server is at the address of the peer: it only comes in.
    Server::start(1, 11, listener(), vec![address(2, 1)], |_| ())
}

/// Sends bytes, says that no more come, and reads until the other side closes.
fn say(port: u16, bytes: &[u8]) -> usize {
    let mut socket = connected(port);
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    answer.len()
}

/// The frames and the end of the connection that came in.
fn told(server: &Server) -> (usize, Reason) {
    let mut frames = 0;
    loop {
        match server.next() {
            ConnectionEvent::Frames { frames: more, .. } => frames += more.len(),
            ConnectionEvent::Down { reason, .. } => return (frames, reason),
            ConnectionEvent::Up { .. } | ConnectionEvent::Name { .. } => {}
        }
    }
}

#[test]
fn whose_words_are_not_understood_is_sent_away_for_a_while() {
    let server = server();
    let handshake = handshake().encode();
    let mut socket = connected(server.port);
    socket.write_all(&handshake).expect("it listens");
    let (stream, _) = server.up(Direction::In);
    server.connections.shut(ServerId(2), stream + 1);
    server.connections.shut(ServerId(3), stream);
    server.connections.shut(ServerId(2), stream);
    assert_eq!(server.down(Direction::In), Reason::NotUnderstood);
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("the end");
    assert_eq!(answer.len(), ANSWER_BYTES);
    let knock = || {
        let mut socket = connected(server.port);
        socket.write_all(&handshake).expect("it listens");
        let mut answer = [0; ANSWER_BYTES];
        socket.read_exact(&mut answer).expect("an answer");
        (Answer::decode(&answer).expect("an answer").verdict, socket)
    };
    assert_eq!(knock().0, Admission::Busy);
    let until = Instant::now() + SOON;
    while knock().0 != Admission::Welcome {
        assert!(Instant::now() < until, "it is let in again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn noise_at_every_place_of_a_stream_ends_that_connection_alone() {
    let server = server();
    let (good, begin) = stream();
    assert_eq!(say(server.port, &good), ANSWER_BYTES);
    assert_eq!(told(&server), (3, Reason::Closed));
    for at in 0..good.len() {
        for noise in [good[at] ^ 0x80, good[at].wrapping_add(1)] {
            let mut bad = good.clone();
            bad[at] = noise;
            let answered = say(server.port, &bad);
            if at < begin {
                // A version that is not ours is told so; anything else is closed.
                let version = (4..6).contains(&at);
                assert_eq!(answered, if version { ANSWER_BYTES } else { 0 }, "byte {at}");
            } else {
                let (frames, reason) = told(&server);
                let noticed = matches!(reason, Reason::Bad(_)) || (reason == Reason::Closed && frames < 3);
                assert!(noticed, "byte {at}: {frames} frames, {reason}");
            }
        }
    }
    assert!(server.events.is_empty(), "who said no handshake was heard of");
    // Cut at every place.
    for end in 0..good.len() {
        say(server.port, &good[..end]);
        if end >= begin {
            assert_eq!(told(&server).1, Reason::Closed);
        }
    }
    assert_eq!(say(server.port, &good), ANSWER_BYTES);
    assert_eq!(told(&server), (3, Reason::Closed));
}

#[test]
fn frames_that_break_the_protocol_are_told() {
    let server = server();
    let (good, begin) = stream();
    let check = |at: usize, new: &[u8], expect: FrameError| {
        let mut bad = good.clone();
        bad[begin + at..][..new.len()].copy_from_slice(new);
        say(server.port, &bad);
        assert_eq!(told(&server).1, Reason::Bad(expect));
    };
    check(0, &u32::MAX.to_le_bytes(), FrameError::Length(u32::MAX));
    check(4, &[77], FrameError::Kind(77));
    check(5, &[9], FrameError::Sequence { expected: 0, found: 9 });
    check(17, b"x", FrameError::Checksum(0));
    logged(&["the connection from the peer is lost", "frame 0 was expected, and frame 9 was received"]);
}

#[test]
fn a_peer_that_sends_where_it_must_be_silent_is_left() {
    let (fake, server) = Fake::with_server(|_| ());
    let mut socket = fake.welcome();
    server.up(Direction::Out);
    socket.write_all(b"x").expect("it is connected");
    assert_eq!(server.down(Direction::Out), Reason::Spoke);
}

#[test]
fn strangers_are_named_in_the_log() {
    let server = server();
    let check = |bytes: &[u8], words: &str| {
        let mut socket = connected(server.port);
        let own = socket.local_addr().expect("it has one").to_string();
        socket.write_all(bytes).expect("somebody listens");
        // It is closed without waiting for more.
        assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)));
        logged(&[&own, words]);
    };
    check(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "it is a web client or a scanner");
    check(&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3], "it speaks TLS, and this server does not");
    check(&(-65536_i64).to_be_bytes(), "it is a server of ZooKeeper");
    check(b"srvr", "it is a client; clients connect to the client port");
    check(&[1; 200], "it does not speak the protocol between servers");
}

#[test]
fn a_silent_connection_is_closed_in_time() {
    let server = server();
    let begin = Instant::now();
    let mut socket = connected(server.port);
    // A part of a handshake buys no time.
    socket.write_all(&stream().0[..50]).expect("somebody listens");
    assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)));
    let took = begin.elapsed();
    assert!(took > super::super::limits::HANDSHAKE_MAX - Duration::from_millis(100) && took < SOON, "{took:?}");
    logged(&[&socket.local_addr().expect("it has one").to_string(), "it says no handshake in time"]);
}

#[test]
fn many_silent_connections_do_not_keep_the_peer_out() {
    let server = server();
    let mut silent = std::collections::VecDeque::new();
    for at in 0..3000 {
        silent.push_back(connected(server.port));
        // No more than a process may have open.
        if silent.len() > 300 {
            silent.pop_front();
        }
        if at % 300 == 299 {
            let (socket, answer) = knock(server.port, |_| ());
            assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::Welcome));
            server.up(Direction::In);
            drop(socket);
            server.down(Direction::In);
        }
    }
    // All but the last of them are closed, whether they notice or not.
    let open = silent.iter().filter(|socket| {
        socket.set_nonblocking(true).expect("it can be set");
        let mut socket: &TcpStream = socket;
        matches!(socket.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert!(open.count() <= super::super::limits::STRANGERS_MAX);
    assert!(server.connections.stop());
}

#[test]
fn a_large_frame_that_does_not_come_holds_nothing() {
    let server = server();
    let mut header = Header::encode(Kind::Raft, 0, &[]);
    header[..4].copy_from_slice(&(60_u32 << 20).to_le_bytes());
    let (mut socket, _) = knock(server.port, |_| ());
    socket.write_all(&header).expect("it is connected");
    socket.write_all(&[0; 1000]).expect("it is connected");
    server.up(Direction::In);
    until("it is read", || server.connections.stats()[0].bytes_in == 1017);
    // It may take its time; the same process may dial again meanwhile.
    let (_again, answer) = knock(server.port, |_| ());
    assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::Welcome));
    assert_eq!(server.down(Direction::In), Reason::Replaced);
}
