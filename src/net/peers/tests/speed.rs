//! How fast: bytes in one direction, and a small frame there and back. Each prints its figures (`--nocapture`); the
//! bounds are loose, since the machine does other things too.

use super::*;
use crate::runtime::mailbox::{Bell, SleepsIn, mailbox};

/// Sends what a leader sends under load, and says how many bytes a second arrived.
fn throughput(change: impl Fn(&mut Settings), payload_bytes: usize, total_bytes: usize) -> f64 {
    let (first, second) = pair(change);
    let payload = Bytes::from(vec![7; payload_bytes]);
    let count = total_bytes / payload_bytes;
    let begin = Instant::now();
    let reader = std::thread::spawn(move || {
        second.frames(count);
        begin.elapsed()
    });
    for _ in 0..count {
        while let Err(error) = first.connections.send(NodeId(2), Kind::Raft, payload.clone()) {
            assert_eq!(error, NotSent::Dropped);
            std::thread::sleep(Duration::from_micros(200));
        }
        first.connections.flush();
    }
    let took = reader.join().expect("everything arrives");
    (count * payload_bytes) as f64 / took.as_secs_f64() / 1e9
}

#[test]
fn bytes_in_one_direction() {
    for (payload_bytes, total_bytes) in
        [(256, 32 << 20), (4 << 10, 128 << 20), (64 << 10, 512 << 20), (1 << 20, 512 << 20)]
    {
        let rate = throughput(|_| (), payload_bytes, total_bytes);
        println!("frames of {payload_bytes} bytes: {rate:.2} GB/s");
        assert!(rate > 0.01, "{rate}");
    }
}

#[test]
fn bytes_in_one_direction_encrypted() {
    let authority = super::tls::Authority::new("corral test");
    let change = |settings: &mut Settings| settings.tls = Some(authority.tls(&["127.0.0.1"]));
    for (payload_bytes, total_bytes) in [(4 << 10, 64 << 20), (64 << 10, 256 << 20)] {
        let rate = throughput(change, payload_bytes, total_bytes);
        println!("frames of {payload_bytes} bytes in TLS: {rate:.2} GB/s");
        assert!(rate > 0.005, "{rate}");
    }
}

/// Servers of which the second answers every frame on the thread that hears of it.
#[test]
fn a_small_frame_there_and_back() {
    let (first, second) = (listener(), listener());
    let peers = vec![address(1, port(&first)), address(2, port(&second))];
    let first = Server::start(1, 11, first, peers.clone(), |_| ());
    let connections: Arc<std::sync::OnceLock<PeerConnections>> = Arc::default();
    let echoing = Arc::clone(&connections);
    let settings = Settings::new(NodeId(2), 22, cluster(), second, peers, None);
    let started = PeerConnections::start(settings, move |event| {
        if let (PeerEvent::Frames { frames, .. }, Some(connections)) = (event, echoing.get()) {
            for frame in frames {
                let _ = connections.send(NodeId(1), frame.kind, frame.payload);
            }
            connections.flush();
        }
    });
    assert!(connections.set(started.expect("threads can be started")).is_ok());
    let _ = [first.up_any(), first.up_any()];
    let limit = Instant::now() + SOON;
    // The first hears of the second's connection before the second does.
    while !connections.get().expect("it was set").stats().iter().all(|peer| peer.up_out) {
        assert!(Instant::now() < limit, "the second's connection stands");
        std::thread::yield_now();
    }
    let mut times: Vec<Duration> = (0..4000)
        .map(|_| {
            let begin = Instant::now();
            first.send(2, Kind::Raft, &[1; 100]).expect("there is room");
            first.frames(1);
            begin.elapsed()
        })
        .collect();
    times.drain(..500);
    times.sort();
    let at = |per_mille: usize| times[times.len() * per_mille / 1000];
    println!("there and back: p50 {:?}, p90 {:?}, p99 {:?}", at(500), at(900), at(990));
    assert!(at(500) < Duration::from_millis(5), "{:?}", at(500));
    connections.get().expect("it was set").stop();
}

/// What waking a thread costs that sleeps as a sender does: a message left for it, a counter in the kernel, `poll`. A
/// frame there and back wakes four threads, two of them so and two by their sockets.
#[test]
fn a_wake_up() {
    let bell = Bell::new().expect("a file can be opened");
    let ((post, inbox), (back, answers)) = (mailbox::<Instant>(&bell), flume::unbounded());
    let last = Arc::clone(&bell);
    let sleeper = std::thread::spawn(move || {
        let nobody = listener();
        let socket = connected(port(&nobody));
        loop {
            bell.listen(SleepsIn::Runtime);
            if inbox.is_empty() {
                super::super::channel::wait(&socket, false, bell.outer(), None).expect("it can be polled");
            }
            bell.awake();
            match inbox.try_recv() {
                Ok(begin) => back.send(begin.elapsed()).expect("somebody waits"),
                Err(flume::TryRecvError::Empty) => {}
                Err(flume::TryRecvError::Disconnected) => return,
            }
        }
    });
    let mut times: Vec<Duration> = (0..3000)
        .map(|_| {
            // Until it sleeps again.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(50) {
                std::hint::spin_loop();
            }
            post.send(Instant::now()).expect("it lives");
            answers.recv().expect("it answers")
        })
        .collect();
    times.sort();
    println!("one wake-up: p50 {:?}, p99 {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
    assert!(times[times.len() / 2] < Duration::from_millis(5));
    drop(post);
    last.rouse();
    sleeper.join().expect("it ends");
}
