//! Peers that die, come back, stall, or are other servers than they should be.

use super::*;
use crate::net::peers::QueueLimits;
use crate::net::peers::dial::FormerAddresses;
use crate::net::peers::limits::{FORMER_MAX, MESSAGE_OVERHEAD_BYTES, READ_BYTES};

#[test]
fn a_reset_is_noticed_in_both_directions() {
    for round in 0..10 {
        let (fake, server) = Fake::with_server(|_| ());
        let out = fake.welcome();
        let (inward, answer) = knock(server.port, |_| ());
        assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::Welcome));
        assert_eq!(server.both_up(), 22);
        // Both ends are idle, as followers' connections are; in every second round they die with a FIN.
        for socket in [out, inward] {
            if round % 2 == 0 { reset(socket) } else { drop(socket) }
        }
        for _ in 0..2 {
            let ConnectionEvent::Down { reason, .. } = server.next() else { panic!("both are down") };
            assert_eq!(reason, if round % 2 == 0 { Reason::Reset } else { Reason::Closed });
        }
    }
}

#[test]
fn a_peer_that_starts_again_is_connected_again() {
    let (first, mut second) = pair(|_| ());
    for incarnation in 23..28 {
        let port = second.port;
        assert!(second.connections.stop());
        let downs = [first.down_any(), first.down_any()];
        assert!(downs.iter().all(|reason| matches!(reason, Reason::Closed | Reason::Reset)), "{downs:?}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free again");
        second = Server::start(2, incarnation, listener, vec![address(1, first.port)], |_| ());
        assert_eq!(first.both_up(), incarnation);
        second.up(Direction::Out);
        second.send(1, Kind::Forward, b"again").expect("there is room");
        assert_eq!(first.frames(1)[0].1, "again");
        first.send(2, Kind::Forward, b"and back").expect("there is room");
        assert_eq!(second.frames(1)[0].1, "and back");
    }
    assert_eq!(first.connections.stats()[0].reconnects, 10);
}

#[test]
fn a_peer_that_reads_nothing_costs_a_bounded_queue() {
    let bytes_max = 4 << 20;
    let (fake, server) = Fake::with_server(|settings| settings.queue = QueueLimits { bytes_max, messages_max: 1000 });
    let socket = fake.welcome();
    let (stream, _) = server.up(Direction::Out);
    let mut dropped = 0;
    // More than kernel and queue together hold.
    for _ in 0..1000 {
        match server.send(2, Kind::Raft, &[7; 64 << 10]) {
            Ok(()) => {}
            Err(NotSent::Dropped) => dropped += 1,
            Err(other) => panic!("{other}"),
        }
        let stats = &server.connections.stats()[0];
        assert!(stats.queued_bytes <= bytes_max && stats.queued_messages <= 1000);
    }
    let stats = &server.connections.stats()[0];
    assert!(dropped > 500 && stats.dropped == dropped, "{dropped} of 1000 were dropped");
    // Messages that may be lost left the connection alone; a message that may not be lost ends it. The kernel may have
    // taken a little more meanwhile.
    let report = || Bytes::from(vec![0; 64 << 10]);
    let sent = (0..1000).map(|_| server.connections.send_on(ServerId(2), stream, Kind::SessionReport, report()));
    assert_eq!(sent.into_iter().find(|sent| sent.is_err()), Some(Err(NotSent::Broken)));
    assert_eq!(server.connections.send_on(ServerId(2), stream, Kind::SessionReport, Bytes::new()), Err(NotSent::Down));
    assert_eq!(server.down(Direction::Out), Reason::QueueFull);
    until("the queue is empty", || server.connections.stats()[0].queued_bytes == 0);
    drop(socket);
    let _again = fake.welcome();
    let (next, _) = server.up(Direction::Out);
    assert!(next > stream);
    assert_eq!(server.connections.send_on(ServerId(2), stream, Kind::SessionReport, Bytes::new()), Err(NotSent::Down));
    assert_eq!(server.connections.send_on(ServerId(2), next, Kind::SessionReport, Bytes::new()), Ok(()));
}

#[test]
fn who_does_not_deal_with_frames_stops_the_peer() {
    let received_bytes_max = 1 << 20;
    let (first, second) = pair(|settings| settings.received_bytes_max = received_bytes_max);
    let mut sent = 0;
    // Until the queue of the first is full, nothing is dropped, nothing is lost.
    while first.send(2, Kind::Raft, &[1; 64 << 10]) == Ok(()) {
        sent += 1;
        assert!(sent < 100_000, "nothing stops the sender");
    }
    let read = || second.connections.stats()[0].bytes_in;
    until("the second reads no more", || {
        let before = read();
        std::thread::sleep(Duration::from_millis(50));
        read() == before
    });
    let received = second.connections.stats()[0].bytes_in;
    let most = received_bytes_max + READ_BYTES + (64 << 10) + sent * MESSAGE_OVERHEAD_BYTES;
    assert!(received <= most as u64, "{received} bytes were read");
    assert_eq!(second.frames(sent).len(), sent);
}

#[test]
fn of_two_processes_with_one_id_the_first_stays() {
    let (fake, server) = Fake::with_server(|_| ());
    let _out = fake.welcome();
    let (first, answer) = knock(server.port, |_| ());
    assert_eq!(answer.map(|answer| (answer.verdict, answer.id)), Some((Admission::Welcome, 1)));
    let (stream, _) = server.up(Direction::In);
    for _ in 0..3 {
        let (_second, answer) = knock(server.port, |handshake| handshake.incarnation = 33);
        assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::Duplicate));
    }
    let from = first.local_addr().expect("it is connected").to_string();
    logged(&["which says it is server 2", "another process with this id is connected from", &from]);
    // The same process may dial again: its connection before is over, and told to be before the new one is there.
    let (_third, answer) = knock(server.port, |_| ());
    assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::Welcome));
    let ConnectionEvent::Down { stream: ended, reason, .. } = server.next_of(Direction::In) else {
        panic!("first the end")
    };
    assert_eq!((ended, reason), (stream, Reason::Replaced));
    let ConnectionEvent::Up { incarnation, .. } = server.next_of(Direction::In) else { panic!("then the begin") };
    assert_eq!(incarnation, 22);
    drop(first);
    // Once it is gone, another one may come.
    drop(_third);
    assert_eq!(server.down(Direction::In), Reason::Closed);
    let (_fourth, answer) = knock(server.port, |handshake| handshake.incarnation = 33);
    assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::Welcome));
    assert_eq!(server.up(Direction::In).1, 33);
}

#[test]
fn a_process_that_dials_again_and_again_is_served_and_bounded() {
    let (fake, server) = Fake::with_server(|_| ());
    let _out = fake.welcome();
    let mut kept = Vec::new();
    let mut welcomed = 0;
    for _ in 0..200 {
        let (socket, answer) = knock(server.port, |_| ());
        let verdict = answer.map(|answer| answer.verdict);
        assert!(matches!(verdict, Some(Admission::Welcome | Admission::Busy)), "{verdict:?}");
        welcomed += usize::from(verdict == Some(Admission::Welcome));
        kept.push(socket);
    }
    assert!(welcomed > 0);
    let mut up = 0;
    while up + 1 < welcomed {
        match server.next_of(Direction::In) {
            ConnectionEvent::Down { reason, .. } => {
                assert_eq!(reason, Reason::Replaced);
                up += 1;
            }
            _ => continue,
        }
    }
}

#[test]
fn whoever_is_not_meant_is_refused_and_both_logs_say_why() {
    let (fake, server) = Fake::with_server(|_| ());
    let _out = fake.welcome();
    let blue = ClusterName::new("blue").expect("a name");
    let check = |change: &dyn Fn(&mut Handshake), verdict: Admission, words: &str| {
        let (mut socket, answer) = knock(server.port, change);
        assert_eq!(answer.map(|answer| answer.verdict), Some(verdict));
        assert_eq!(socket.read(&mut [0]).expect("it is closed"), 0);
        logged(&[&socket.local_addr().expect("it has one").to_string(), words]);
    };
    check(
        &|handshake| handshake.cluster = blue.clone(),
        Admission::WrongCluster,
        "it is of the cluster blue, this server of corral",
    );
    check(&|handshake| handshake.to = 3, Admission::WrongServer, "it means server 3, this is server 1");
    check(&|handshake| handshake.from = 9, Admission::NotConfigured, "the list of servers here lacks it");
    check(&|handshake| handshake.from = 1, Admission::NotConfigured, "the list of servers here lacks it");
}

/// A server of this generation, and how often it was told that there is a later one.
fn of_generation(id: u8, own: Generation, listener: TcpListener, peers: Vec<PeerAddress>) -> (Server, Arc<AtomicU64>) {
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let generations = Generations::new(own, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let server = Server::start(id, u64::from(id) * 11, listener, peers, |settings| {
        settings.generations = Arc::new(generations);
        // A server without a proof is not believed.
        settings.secrets = Some(Arc::new(corral_peer::Secrets::of_text(&[b'x'; 32]).expect("it is long enough")));
    });
    (server, told)
}

#[test]
fn servers_of_two_generations_do_not_speak_and_the_older_one_is_told() {
    let (first, second) = (listener(), listener());
    let (at_first, at_second) = (address(1, port(&first)), address(2, port(&second)));
    // Only the dialler reaches the other: each learns it in one way alone.
    let (accepting, at_accepting) = of_generation(1, Generation::FIRST, first, vec![address(2, 1)]);
    let (dialler, at_dialler) = of_generation(2, Generation(9), second, vec![at_first]);
    until("the listener is told", || at_accepting.load(Ordering::Relaxed) > 0);
    logged(&["which says it is server 2", "its data come from a rescue"]);
    logged(&["the peer is not reached", "its data are older than the rescue"]);
    let (_third, at_third) = of_generation(1, Generation(8), listener(), vec![at_second]);
    until("who dials is told", || at_third.load(Ordering::Relaxed) > 0);
    assert_eq!(at_dialler.load(Ordering::Relaxed), 0);
    assert!(accepting.events.is_empty() && dialler.events.is_empty());
}

#[test]
fn who_takes_data_over_parts_with_those_of_another_generation() {
    let (first, second) = (listener(), listener());
    let peers = vec![address(1, port(&first)), address(2, port(&second))];
    let (uninitialised, at_uninitialised) = of_generation(1, Generation::NONE, first, peers.clone());
    let (rescued, _) = of_generation(2, Generation(9), second, peers);
    for server in [&uninitialised, &rescued] {
        server.up_any();
        server.up_any();
    }
    uninitialised.connections.adopt(Generation(9)).expect("threads can be started");
    assert_eq!(uninitialised.down_any(), Reason::Stopped);
    for server in [&uninitialised, &rescued] {
        server.up_any();
        server.up_any();
    }
    assert_eq!((uninitialised.connections.generation(), at_uninitialised.load(Ordering::Relaxed)), (Generation(9), 0));
}

#[test]
fn the_answers_are_understood() {
    let check = |answer: &dyn Fn(&Fake, &mut TcpStream), words: &str| {
        let (fake, server) = Fake::with_server(|_| ());
        let (mut socket, _) = fake.listener.accept().expect("it dials");
        socket.read_exact(&mut [0; HANDSHAKE_BYTES]).expect("it sends its handshake");
        answer(&fake, &mut socket);
        drop(socket);
        logged(&[&format!("127.0.0.1:{}", port(&fake.listener)), words]);
        assert!(server.connections.stats()[0].dials_failed > 0 && server.events.is_empty());
    };
    let verdicts = [
        (Admission::WrongCluster, "it is not of the cluster corral; give all servers"),
        (Admission::WrongServer, "it is another server; correct its address or id"),
        (Admission::NotConfigured, "its list of servers lacks server 1"),
        (Admission::Duplicate, "another process with the id 1 is connected to it"),
        (Admission::Busy, "it is still busy with this server's last connection"),
        (Admission::WrongCertificate, "this server's certificate is not for the host"),
        (Admission::WrongVersion, "it speaks another version of the protocol"),
        (Admission::NotProven, "it does not accept this server's secret"),
    ];
    for (verdict, words) in verdicts {
        check(&|fake, socket| fake.answer(socket, verdict), words);
    }
    let other = Answer { verdict: Admission::Welcome, id: 3, generation: Generation::FIRST }.encode();
    check(&|_, socket| socket.write_all(&other).expect("it listens"), "there is server 3, not server 2");
    check(&|_, _| (), "it closed the connection instead of answering");
    check(
        &|_, socket| socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it listens"),
        "does not speak the protocol",
    );
    let mut bad = other;
    bad[27] ^= 1;
    check(&|_, socket| socket.write_all(&bad).expect("it listens"), "the answer is bad: the checksum is wrong");
}

#[test]
fn a_name_is_resolved_at_every_dial() {
    let (first, second) = (listener(), listener());
    let ports = Arc::new(Mutex::new(Vec::new()));
    let resolve = {
        let ports = Arc::clone(&ports);
        move |host: &str, asked: u16| {
            assert_eq!((host, asked), ("two.example", 1234));
            let ports = ports.lock().expect("no thread panics with it").clone();
            match ports.is_empty() {
                true => Err(std::io::Error::other("no such name")),
                false => Ok(ports.into_iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).collect()),
            }
        }
    };
    let peer = PeerAddress { id: ServerId(2), host: "two.example".to_owned(), port: 1234 };
    let server = Server::start(1, 11, listener(), vec![peer], |settings| settings.resolve = Arc::new(resolve));
    assert!(matches!(server.next(), ConnectionEvent::Name { resolves: false, .. }));
    ports.lock().expect("no thread panics with it").push(port(&first));
    let first = Fake { listener: first };
    let socket = first.welcome();
    assert!(matches!(server.next(), ConnectionEvent::Name { resolves: true, .. }));
    server.up(Direction::Out);
    // It moves: for a while the name is not known, then it has a dead address and a living one.
    ports.lock().expect("no thread panics with it").clear();
    let gone = port(&first.listener);
    drop((socket, first));
    server.down(Direction::Out);
    logged(&["two.example:1234", "does not resolve: no such name"]);
    *ports.lock().expect("no thread panics with it") = vec![gone, port(&second)];
    let _socket = Fake { listener: second }.welcome();
    server.up(Direction::Out);
}

#[test]
fn who_moves_is_found_where_it_was_until_it_is_there() {
    let (there, free) = (Fake { listener: listener() }, ClosedPort::new());
    let server = Server::start(1, 11, listener(), vec![address(2, port(&there.listener))], |_| ());
    let _socket = there.welcome();
    server.up(Direction::Out);
    server.connections.configure(vec![address(2, free.port())]).expect("threads can be started");
    server.down(Direction::Out);
    let socket = there.welcome();
    server.up(Direction::Out);
    let here = Fake { listener: free.open() };
    drop(socket);
    server.down(Direction::Out);
    let _socket = here.welcome();
    server.up(Direction::Out);
}

#[test]
fn who_was_found_is_found_there_again_however_often_it_is_said_to_move() {
    let (there, configured) = (Fake { listener: listener() }, ClosedPort::new());
    let server = Server::start(1, 11, listener(), vec![address(2, configured.port())], |settings| {
        settings.listed = Some(vec![address(2, port(&there.listener))]);
    });
    let mut socket = there.welcome();
    server.up(Direction::Out);
    // Bound together, so that no two are the same.
    let moves: Vec<TcpListener> = (0..=FORMER_MAX).map(|_| listener()).collect();
    let moves: Vec<u16> = moves.iter().map(port).collect();
    for next in &moves {
        server.connections.configure(vec![address(2, *next)]).expect("threads can be started");
        server.down(Direction::Out);
        drop(socket);
        socket = there.welcome();
        server.up(Direction::Out);
    }
    // It is found no more where it was, but where this server's configuration says.
    drop((there, socket));
    server.down(Direction::Out);
    let here = Fake { listener: configured.open() };
    let _socket = here.welcome();
    server.up(Direction::Out);
}

#[test]
fn former_addresses_are_few_and_different() {
    let mut former_addresses = FormerAddresses::default();
    let mut check = |last: u16, present: Option<u16>, expect: &[u16]| {
        former_addresses.add(address(2, last), present.map(|port| address(2, port)).as_ref());
        assert_eq!(former_addresses.former.iter().map(|former| former.port).collect::<Vec<_>>(), expect);
    };
    check(1, Some(2), &[1]);
    check(2, Some(1), &[2]);
    check(1, None, &[1, 2]);
    check(1, Some(3), &[1, 2]);
    check(3, Some(4), &[3, 1, 2]);
    check(4, Some(5), &[4, 3, 1]);
}

#[test]
fn nothing_leaves_the_host_unencrypted_unless_that_is_wanted() {
    let quiet = |settings: &mut Settings| settings.plaintext = false;
    // Under any host name.
    let resolve = |_: &str, port: u16| Ok(vec![SocketAddr::from(([192, 0, 2, 7], port))]);
    let elsewhere = vec![PeerAddress { id: ServerId(2), host: "two.localhost".to_owned(), port: 1234 }];
    let server = Server::start(1, 11, listener(), elsewhere, |settings| {
        quiet(settings);
        settings.resolve = Arc::new(resolve);
    });
    logged(&["two.localhost", "192.0.2.7 is another host", "ensemble.allow_plaintext"]);
    assert!(server.connections.exposed([0, 0, 0, 0].into()).is_some());
    assert_eq!(server.connections.exposed("::ffff:127.0.0.1".parse().expect("an address")), None);
    drop(server);
    let there = Fake { listener: listener() };
    let server = Server::start(1, 11, listener(), vec![address(2, port(&there.listener))], quiet);
    let _socket = there.welcome();
    server.up(Direction::Out);
}

#[test]
fn peers_come_by_way_of_another_port_too() {
    let server = Server::start(1, 11, listener(), vec![address(2, 1), address(3, 1)], |_| ());
    let more = port(&listener());
    server.connections.listen_at(SocketAddr::from((Ipv4Addr::LOCALHOST, more))).expect("it is free");
    for (id, port) in [(2, more), (3, server.port)] {
        let (_socket, answer) = knock(port, |handshake| handshake.from = id);
        assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::Welcome));
        server.up(Direction::In);
    }
}

#[test]
fn nobody_there_is_said_once_and_dialled_on() {
    let free = ClosedPort::new();
    let server = Server::start(1, 11, listener(), vec![address(2, free.port())], |_| ());
    logged(&[
        " INFO ",
        &format!("127.0.0.1:{}", free.port()),
        "is not reached yet",
        "connection refused; start that server",
    ]);
    let _socket = Fake { listener: free.open() }.welcome();
    server.up(Direction::Out);
}

#[test]
fn peers_come_and_go_while_it_runs() {
    let (fake, server) = Fake::with_server(|_| ());
    let here = address(2, port(&fake.listener));
    let (_out, _inward) = (fake.welcome(), knock(server.port, |_| ()));
    assert_eq!(server.both_up(), 22);
    // Nothing changes for a peer that stays.
    server.connections.configure(vec![here.clone(), address(1, 9)]).expect("threads can be started");
    server.send(2, Kind::Raft, b"still").expect("it is connected");
    until("it is written", || server.connections.stats()[0].messages_out == 1);
    assert!(server.events.is_empty());
    server.connections.configure(Vec::new()).expect("threads can be started");
    assert_eq!([server.down_any(), server.down_any()], [Reason::Stopped, Reason::Stopped]);
    assert_eq!(server.send(2, Kind::Raft, b"gone"), Err(NotSent::Unknown));
    let (_refused, answer) = knock(server.port, |_| ());
    assert_eq!(answer.map(|answer| answer.verdict), Some(Admission::NotConfigured));
    // It is one again, at another address, and moves once more while it is connected.
    for _ in 0..2 {
        let moved = Fake { listener: listener() };
        let there = address(2, port(&moved.listener));
        server.connections.configure(vec![there]).expect("threads can be started");
        let _out = moved.welcome();
        server.up(Direction::Out);
        until("the listener knows it", || {
            let (_inward, answer) = knock(server.port, |_| ());
            answer.is_some_and(|answer| answer.verdict == Admission::Welcome)
        });
    }
    assert!(server.connections.stop());
}
