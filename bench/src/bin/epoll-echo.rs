//! The physical floor: a bare epoll server that replies to the load generator without a tree.
//!
//! One thread, level-triggered epoll, no runtime. A ready socket costs one read and one write, whatever the number of
//! requests in it; a write waits if the socket takes no more. `corral_bench::echo` makes its replies. No server can
//! need less CPU time than this without fewer system calls.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use anyhow::{Context, Result};
use corral_bench::echo::{EchoArgs, EchoSession, Replies, SCRATCH_BYTES, report, run};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 1024;
/// The listener's number among the events; connections have others.
const LISTENER: u64 = 0;

fn serve(args: &EchoArgs, mut replies: Replies) -> Result<()> {
    let listener = TcpListener::bind(&args.addr).with_context(|| format!("--addr {}", args.addr))?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    report(&format!("listening on {}", listener.local_addr()?));
    let mut connections: BTreeMap<u64, (TcpStream, EchoSession)> = BTreeMap::new();
    let (mut accepted, mut scratch) = (LISTENER, vec![0; SCRATCH_BYTES]);
    let mut events = vec![EpollEvent::empty(); EVENTS_MAX];
    loop {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Err(Errno::EINTR) => 0,
            waited => waited.context("epoll_wait")?,
        };
        for at in events[..count].iter().map(EpollEvent::data) {
            if at == LISTENER {
                let (stream, _) = listener.accept().context("accept")?;
                stream.set_nodelay(true)?;
                accepted += 1;
                epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, accepted))?;
                connections.insert(accepted, (stream, EchoSession::default()));
                continue;
            }
            let Some((stream, session)) = connections.get_mut(&at) else { continue };
            let open = turn(stream, session, &mut replies, &mut scratch);
            if let Err(error) = &open {
                report(&format!("connection closed: {error:#}"));
            }
            if !open.unwrap_or(false) {
                // Dropped, which closes it.
                connections.remove(&at);
            }
        }
    }
}

/// One read and one write of a ready socket. Returns whether the connection stays.
fn turn(stream: &mut TcpStream, session: &mut EchoSession, replies: &mut Replies, scratch: &mut [u8]) -> Result<bool> {
    let bytes = stream.read(scratch)?;
    let open = bytes > 0 && session.take(&scratch[..bytes], replies)?;
    stream.write_all(&session.out)?;
    session.out.clear();
    Ok(open)
}

fn main() -> ExitCode {
    run(|args, replies| serve(&args, replies))
}
