//! The ring beside real sockets of this host: nothing is lost, nothing comes twice, nothing goes to the wrong one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use glommio::LocalExecutor;
use glommio::timer::Timer;

use super::*;
use crate::runtime::mailbox::SleepsIn;

const TIMEOUT: Duration = Duration::from_secs(60);
const DEPTH: u32 = 1024;

fn on_executor<F: Future<Output = ()>>(test: impl FnOnce(Rc<Ring>) -> F) {
    LocalExecutor::default().run(async { test(Rc::new(ring())).await });
}

fn ring() -> Ring {
    Ring::new(Bell::new().expect("a file can be opened"), DEPTH).expect("this kernel can do it")
}

/// Sends bytes at once, and gives how many of them were sent.
fn send(ring: &Ring, seen: &mut Seen, place: SocketSlot, bytes: &[u8]) -> usize {
    ring.exchange(&[Outgoing { place, bytes, last: false }], None);
    seen.sent = 0;
    seen.take(ring);
    seen.sent
}

/// Both ends of a connection, ours first.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let far = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    far.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    let near = listener.accept().expect("one connects").0;
    near.set_nodelay(true).expect("it can be set");
    (near, far)
}

fn conn(slot: u32) -> ConnId {
    ConnId { slot, generation: 1 }
}

/// The events of each connection; bytes as they came, the rest as words.
#[derive(Default)]
struct Seen {
    bytes: BTreeMap<u32, Vec<u8>>,
    words: Vec<(u32, &'static str)>,
    sent: usize,
    accepted: Vec<TcpStream>,
}

impl Seen {
    /// Takes what the ring has, now.
    fn take(&mut self, ring: &Ring) {
        ring.exchange(&[], None);
        while let Some(event) = ring.next() {
            match event {
                SocketEvent::Received { conn, bytes } => {
                    self.bytes.entry(conn.slot).or_default().extend_from_slice(&bytes)
                }
                SocketEvent::Ended { conn } => self.words.push((conn.slot, "ended")),
                SocketEvent::Failed { conn } => self.words.push((conn.slot, "failed")),
                SocketEvent::Sent { conn, count: 0 } => self.words.push((conn.slot, "room")),
                SocketEvent::Sent { count, .. } => self.sent += count,
                SocketEvent::Accepted { stream } => self.accepted.push(stream),
            }
        }
    }

    /// Takes what comes until this is so.
    async fn until(&mut self, ring: &Ring, done: impl Fn(&Seen) -> bool) {
        let begun = Instant::now();
        loop {
            self.take(ring);
            if done(self) {
                return;
            }
            assert!(begun.elapsed() < TIMEOUT, "it comes in time");
            if !ring.has_work() {
                ring.wait().await;
            }
        }
    }

    /// Takes what comes for a while.
    async fn for_a_while(&mut self, ring: &Ring) {
        for _ in 0..10 {
            Timer::new(Duration::from_millis(2)).await;
            self.take(ring);
        }
    }

    fn count(&self, slot: u32) -> usize {
        self.bytes.get(&slot).map_or(0, Vec::len)
    }
}

/// Bytes that tell where they belong.
fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at / 7 + seed * 31) % 251).expect("below 251")).collect()
}

#[test]
fn exhausted_buffers_lose_nothing() {
    on_executor(|ring| async move {
        const SOCKETS: u32 = 40;
        const LENGTH: usize = 300_000;
        let writers: Vec<_> = (0..SOCKETS)
            .map(|slot| {
                let (near, mut far) = connection();
                ring.adopt(near, conn(slot));
                std::thread::spawn(move || far.write_all(&pattern(slot as usize, LENGTH)).map(|()| far))
            })
            .collect();
        // All of it waits in the sockets: far more than there are buffers.
        std::thread::sleep(Duration::from_millis(100));
        let mut seen = Seen::default();
        seen.until(&ring, |seen| (0..SOCKETS).all(|slot| seen.count(slot) == LENGTH)).await;
        for slot in 0..SOCKETS {
            assert!(seen.bytes[&slot] == pattern(slot as usize, LENGTH), "connection {slot}");
        }
        assert_eq!(seen.words, []);
        writers.into_iter().for_each(|writer| drop(writer.join().expect("it writes").expect("all of it")));
    });
}

#[test]
fn buffers_are_given_back_and_taken_again() {
    on_executor(|ring| async move {
        const LENGTH: usize = 1 << 20;
        let mut seen = Seen::default();
        for round in 0..2 {
            let writers: Vec<_> = (0..40)
                .map(|slot| {
                    let (near, mut far) = connection();
                    let place = ring.adopt(near, conn(slot));
                    let writer =
                        std::thread::spawn(move || far.write_all(&pattern(slot as usize, LENGTH)).map(|()| far));
                    (place, writer)
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100));
            seen.until(&ring, |seen| (0..40).all(|slot| seen.count(slot) == LENGTH)).await;
            let most = ring.queue.buffers();
            assert!(most > 64, "it was not enough in round {round}");
            // With the kernel, in use, and back: each buffer several times.
            let (near, mut far) = connection();
            let place = ring.adopt(near, conn(100));
            for number in 0..3000 {
                if number % 300 == 0 {
                    ring.look_after();
                }
                far.write_all(&pattern(number, 100)).expect("there is room");
                seen.until(&ring, |seen| seen.count(100) == 100).await;
                assert!(seen.bytes.remove(&100) == Some(pattern(number, 100)), "round {round}, {number}");
            }
            assert_eq!(ring.queue.buffers(), 64);
            ring.close(place);
            for (slot, (place, writer)) in (0..).zip(writers) {
                assert!(seen.bytes.remove(&slot) == Some(pattern(slot as usize, LENGTH)), "connection {slot}");
                drop(writer.join().expect("it writes").expect("all of it"));
                ring.close(place);
            }
        }
    });
}

#[test]
fn whoever_connects_is_accepted_until_the_listener_is_shut_down() {
    on_executor(|ring| async move {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let there = listener.local_addr().expect("it is bound");
        let other = listener.try_clone().expect("it can be cloned");
        ring.listen(listener);
        let mut seen = Seen::default();
        for count in [1, 2, 50] {
            let far: Vec<_> = (0..count).map(|_| TcpStream::connect(there).expect("it listens")).collect();
            seen.until(&ring, |seen| seen.accepted.len() == count).await;
            let ours: BTreeSet<_> = far.iter().map(|far| far.local_addr().expect("it is bound")).collect();
            let theirs: BTreeSet<_> =
                seen.accepted.drain(..).map(|near| near.peer_addr().expect("connected")).collect();
            assert_eq!(ours, theirs);
        }
        rustix::net::shutdown(&other, rustix::net::Shutdown::Both).expect("it listens");
        seen.for_a_while(&ring).await;
        assert!(TcpStream::connect(there).is_err(), "nobody listens");
        assert!(seen.accepted.is_empty());
    });
}

#[test]
fn a_listener_takes_the_place_of_another() {
    on_executor(|ring| async move {
        let mut seen = Seen::default();
        for shut_first in [false, true] {
            let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("loopback has a free port"));
            let there = listeners.each_ref().map(|one| one.local_addr().expect("it is bound"));
            let [before, after] = listeners;
            let shut = |before: &TcpListener| rustix::net::shutdown(before, rustix::net::Shutdown::Both);
            let copy = before.try_clone().expect("it can be cloned");
            ring.listen(before);
            seen.for_a_while(&ring).await;
            if shut_first {
                shut(&copy).expect("it listens");
                seen.for_a_while(&ring).await;
            }
            ring.listen(after);
            if !shut_first {
                shut(&copy).expect("it listens");
            }
            seen.for_a_while(&ring).await;
            assert!(TcpStream::connect(there[0]).is_err(), "nobody listens");
            let far = TcpStream::connect(there[1]).expect("it listens");
            seen.until(&ring, |seen| seen.accepted.len() == 1).await;
            let near = seen.accepted.pop().expect("just seen");
            assert_eq!(near.peer_addr().ok(), far.local_addr().ok());
        }
    });
}

#[test]
fn more_connections_at_once_than_completions_have_room_are_all_accepted() {
    const SMALL: u32 = 8;
    const CLIENTS: usize = 100;
    LocalExecutor::default().run(async {
        let ring = Ring::new(Bell::new().expect("a file can be opened"), SMALL).expect("this kernel can do it");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        ring.listen(listener);
        let mut seen = Seen::default();
        seen.take(&ring);
        let clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(address).expect("it listens")).collect();
        seen.take(&ring);
        assert!(seen.accepted.len() <= ACCEPTS, "the kernel accepts few before they are looked at");
        seen.until(&ring, |seen| seen.accepted.len() == CLIENTS).await;
        drop(clients);
    });
}

#[test]
fn the_last_bytes_leave_with_the_end() {
    on_executor(|ring| async move {
        for rest in [&b""[..], b"nobody reads this"] {
            let (near, mut far) = connection();
            let place = ring.adopt(near, conn(1));
            ring.exchange(&[], None);
            ring.exchange(&[Outgoing { place, bytes: b"goodbye", last: true }], None);
            far.write_all(rest).expect("there is room");
            ring.close(place);
            let mut seen = Seen::default();
            seen.for_a_while(&ring).await;
            let mut bytes = Vec::new();
            let end = far.read_to_end(&mut bytes);
            assert!(end.is_ok() || !rest.is_empty(), "{end:?}");
            assert_eq!(bytes, b"goodbye");
        }
    });
}

#[test]
fn a_paused_connection_is_not_read() {
    on_executor(|ring| async move {
        let (near, mut far) = connection();
        let place = ring.adopt(near, conn(1));
        far.write_all(b"one").expect("there is room");
        let mut seen = Seen::default();
        seen.until(&ring, |seen| seen.count(1) == 3).await;
        ring.pause(place);
        seen.for_a_while(&ring).await;
        far.write_all(b"two").expect("there is room");
        seen.for_a_while(&ring).await;
        assert_eq!(seen.bytes[&1], b"one");
        // Twice, and paused again before the kernel has heard of it.
        for _ in 0..2 {
            ring.resume(place);
        }
        seen.until(&ring, |seen| seen.bytes[&1] == b"onetwo").await;
        ring.pause(place);
        ring.resume(place);
        far.write_all(b"three").expect("there is room");
        seen.until(&ring, |seen| seen.bytes[&1] == b"onetwothree").await;
        assert_eq!(seen.words, []);
    });
}

#[test]
fn ends_and_failures_are_told_once_and_behind_the_bytes() {
    on_executor(|ring| async move {
        let ((near, mut far), (resetting, reset)) = (connection(), connection());
        let place = ring.adopt(near, conn(1));
        ring.adopt(resetting, conn(2));
        far.write_all(b"last words").expect("there is room");
        far.shutdown(std::net::Shutdown::Write).expect("it is open");
        let socket = socket2::Socket::from(reset);
        socket.set_linger(Some(Duration::ZERO)).expect("it can be set");
        drop(socket);
        let mut seen = Seen::default();
        seen.until(&ring, |seen| seen.words.len() == 2).await;
        seen.for_a_while(&ring).await;
        seen.words.sort_unstable();
        assert_eq!(seen.words, [(1, "ended"), (2, "failed")]);
        assert_eq!(seen.bytes[&1], b"last words");
        // Half closed: it still takes what it is sent.
        assert_eq!(send(&ring, &mut seen, place, b"reply"), 5);
        ring.close(place);
        seen.take(&ring);
        let mut reply = Vec::new();
        far.read_to_end(&mut reply).expect("the reply and the end");
        assert_eq!(reply, b"reply");
    });
}

#[test]
fn a_closed_socket_is_nobody_elses() {
    on_executor(|ring| async move {
        let mut seen = Seen::default();
        for round in 0..200 {
            let (near, mut far) = connection();
            let place = ring.adopt(near, conn(round));
            if round % 3 > 0 {
                ring.exchange(&[], None);
            }
            if round % 2 == 0 {
                far.write_all(b"too late").expect("there is room");
            }
            if round % 5 == 0 {
                ring.pause(place);
            }
            ring.close(place);
            ring.close(place);
            assert_eq!(send(&ring, &mut seen, place, b"x"), 0, "nothing is sent to a closed one");
            // Takes the descriptor's number as soon as that is free.
            let (near, mut far) = connection();
            let next = ring.adopt(near, conn(1000 + round));
            ring.resume(place);
            far.write_all(b"handshake").expect("there is room");
            seen.until(&ring, |seen| seen.count(1000 + round) == 9).await;
            assert_eq!(seen.bytes[&(1000 + round)], b"handshake");
            ring.close(next);
        }
        seen.for_a_while(&ring).await;
        assert!(seen.bytes.keys().all(|slot| *slot >= 1000), "no event of a closed one");
        assert_eq!(seen.words, []);
        assert!(ring.slots.borrow().iter().all(|slot| slot.socket.is_none()), "every socket is closed");
        assert!(ring.slots.borrow().len() < 20, "places are used again");
    });
}

#[test]
fn room_is_told_when_there_is_some() {
    on_executor(|ring| async move {
        let (near, mut far) = connection();
        let place = ring.adopt(near, conn(1));
        let chunk = pattern(1, 1 << 16);
        let mut sent = 0;
        let mut seen = Seen::default();
        loop {
            match send(&ring, &mut seen, place, &chunk) {
                0 => break,
                count => sent += count,
            }
        }
        seen.for_a_while(&ring).await;
        assert_eq!(seen.words, [], "nobody has read yet");
        let reader = std::thread::spawn(move || far.read_exact(&mut vec![0; sent]).map(|()| far));
        seen.until(&ring, |seen| seen.words == [(1, "room")]).await;
        drop(reader.join().expect("it reads").expect("all that was sent"));
    });
}

#[test]
fn a_wait_ends_whenever_something_comes() {
    on_executor(|ring| async move {
        let (near, mut far) = connection();
        let place = ring.adopt(near, conn(1));
        const ROUNDS: usize = 3000;
        let asker = std::thread::spawn(move || {
            for round in 0..ROUNDS {
                // Now and then right into the moment when the other side goes to sleep.
                std::thread::sleep(Duration::from_micros((round as u64 * 37) % 120));
                far.write_all(&[1])?;
                far.read_exact(&mut [0])?;
            }
            std::io::Result::Ok(())
        });
        let mut seen = Seen::default();
        for round in 1..=ROUNDS {
            seen.until(&ring, |seen| seen.count(1) == round).await;
            assert_eq!(send(&ring, &mut seen, place, &[2]), 1);
        }
        asker.join().expect("it asks").expect("it is answered in time");
    });
}

#[test]
fn a_ring_that_sleeps_is_woken_by_its_sockets_its_bell_and_its_limit() {
    on_executor(|ring| async move {
        let bell = Bell::new().expect("a file can be opened");
        let ring = Ring::new(Arc::clone(&bell), DEPTH).map_or(ring, Rc::new);
        let (near, mut far) = connection();
        ring.adopt(near, conn(1));
        let mut seen = Seen::default();
        seen.take(&ring);
        let (post, inbox) = crate::runtime::mailbox::mailbox(&bell);
        let other = std::thread::spawn(move || {
            for round in 0_u64..2000 {
                std::thread::sleep(Duration::from_micros((round * 37) % 120));
                if round % 2 == 0 {
                    far.write_all(&[1])?;
                } else {
                    post.send(round).expect("it is awaited");
                }
                // One at a time: the next comes when this has been seen.
                far.read_exact(&mut [0])?;
            }
            std::io::Result::Ok(far)
        });
        let (near, place, mut posted) = (1, SocketSlot { index: 0, generation: 1 }, 0);
        for round in 0..2000 {
            let begun = Instant::now();
            while seen.count(near) + posted <= round {
                let sleeps_in = if round % 3 == 0 { SleepsIn::Runtime } else { SleepsIn::Ring };
                bell.listen(sleeps_in);
                if !inbox.is_empty() || ring.has_work() {
                } else if sleeps_in == SleepsIn::Ring {
                    ring.exchange(&[], Some(TIMEOUT));
                } else {
                    ring.wait().await;
                }
                bell.awake();
                posted += inbox.try_iter().count();
                seen.take(&ring);
                assert!(begun.elapsed() < TIMEOUT / 2, "round {round}");
            }
            assert_eq!(send(&ring, &mut seen, place, &[2]), 1);
        }
        let slept = Instant::now();
        assert!(!ring.exchange(&[], Some(Duration::from_millis(30))));
        assert!(slept.elapsed() >= Duration::from_millis(30));
        drop(other.join().expect("it asks").expect("it is answered in time"));
    });
}
