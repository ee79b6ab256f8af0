//! Values from standard input and to standard output, with their exact bytes.

use std::io::{self, BufRead as _, Read as _, Write as _};

use tokio::task::spawn_blocking;

use crate::exit::{ExitCode, Fault};

/// Of one value. Servers take requests below 1 MiB, unless they are configured otherwise.
const BYTES_MAX: u64 = (1 << 20) - (4 << 10);

/// Standard input to its end. A thread waits for it, so that signals end the wait.
///
/// # Errors
/// If it cannot be read, or is longer than 1,044,480 bytes.
pub(super) async fn read_all() -> Result<Vec<u8>, Fault> {
    read(|mut input, all| input.read_to_end(all)).await
}

/// The next line of standard input without its end, or `None` at the end.
///
/// # Errors
/// As [`read_all`].
pub(super) async fn read_line() -> Result<Option<Vec<u8>>, Fault> {
    let mut line = read(|mut input, line| input.read_until(b'\n', line)).await?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(line))
}

async fn read(
    how: impl FnOnce(io::Take<io::StdinLock<'static>>, &mut Vec<u8>) -> io::Result<usize> + Send + 'static,
) -> Result<Vec<u8>, Fault> {
    let wrong = |reason: String| Fault::new(ExitCode::Usage, format!("standard input: {reason}"));
    let read = spawn_blocking(move || {
        let mut bytes = Vec::new();
        how(io::stdin().lock().take(BYTES_MAX), &mut bytes).map(|_| bytes)
    });
    let bytes = read.await.map_err(io::Error::from).flatten().map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 == BYTES_MAX {
        Err(wrong("a value is longer than 1,044,480 bytes".to_owned()))
    } else {
        Ok(bytes)
    }
}

/// Writes a value and a line end. A thread waits for the reader.
///
/// # Errors
/// Also if the reader has closed the pipe.
pub(super) async fn show(mut value: Vec<u8>) -> Result<(), Fault> {
    value.push(b'\n');
    write(value).await
}

/// Writes a value as it is.
///
/// # Errors
/// As [`show`].
pub(super) async fn write(value: Vec<u8>) -> Result<(), Fault> {
    let failed = |error| Fault::new(ExitCode::Internal, format!("standard output cannot be written: {error}"));
    let written = spawn_blocking(move || {
        let mut out = io::stdout().lock();
        out.write_all(&value).and_then(|()| out.flush())
    });
    written.await.map_err(io::Error::from).flatten().map_err(failed)
}
