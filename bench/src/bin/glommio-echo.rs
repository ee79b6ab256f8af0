//! The floor of the runtime: a glommio server that replies to the load generator without a tree.
//!
//! One executor with default timers, one task per connection, one scratch shared by all, every whole frame parsed and
//! answered, one write per batch. `corral_bench::echo` makes its replies. Its one thread is all there is.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::task::Poll;

use anyhow::Result;
use corral_bench::echo::{EchoSession, Replies, SCRATCH_BYTES, report, run};
use futures_lite::{AsyncRead, AsyncWriteExt};
use glommio::net::{TcpListener, TcpStream};
use glommio::{LocalExecutorBuilder, Placement};

async fn serve(mut stream: TcpStream, scratch: Rc<RefCell<Vec<u8>>>, replies: Rc<RefCell<Replies>>) -> Result<()> {
    stream.set_nodelay(true).map_err(io::Error::from)?;
    let mut session = EchoSession::default();
    loop {
        // Scratch and replies are borrowed within one poll only, and all frames are parsed in that poll.
        let open = poll_fn(|cx| {
            let mut scratch = scratch.borrow_mut();
            match Pin::new(&mut stream).poll_read(cx, &mut scratch[..]) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Ok(0)) => Poll::Ready(Ok(false)),
                Poll::Ready(Ok(bytes)) => Poll::Ready(session.take(&scratch[..bytes], &mut replies.borrow_mut())),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            }
        })
        .await?;
        stream.write_all(&session.out).await?;
        session.out.clear();
        if !open {
            return Ok(());
        }
    }
}

async fn listen(addr: String, replies: Replies) -> Result<()> {
    let listener = TcpListener::bind(&addr).map_err(|error| anyhow::anyhow!("--addr {addr}: {error}"))?;
    let scratch = Rc::new(RefCell::new(vec![0; SCRATCH_BYTES]));
    let replies = Rc::new(RefCell::new(replies));
    report(&format!("listening on {}", listener.local_addr().map_err(io::Error::from)?));
    loop {
        let stream = listener.accept().await.map_err(io::Error::from)?;
        let (scratch, replies) = (Rc::clone(&scratch), Rc::clone(&replies));
        glommio::spawn_local(async move {
            if let Err(error) = serve(stream, scratch, replies).await {
                report(&format!("connection closed: {error:#}"));
            }
        })
        .detach();
    }
}

fn main() -> ExitCode {
    run(|args, replies| {
        let placement = args.cpu.map_or(Placement::Unbound, Placement::Fixed);
        let executor = LocalExecutorBuilder::new(placement)
            .name("echo")
            .spawn(move || listen(args.addr, replies))
            .map_err(|error| anyhow::anyhow!("the executor cannot start: {error}"))?;
        executor.join().map_err(|error| anyhow::anyhow!("the executor failed: {error}"))?
    })
}
