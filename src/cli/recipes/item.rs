//! Values from standard input and to standard output, with their exact bytes.

use std::io::{self, BufRead as _, Read as _, Write as _};

use crate::exit::{ExitCode, Fault};

/// Of one value. Servers take requests of 1 MiB.
const BYTES_MAX: u64 = 4 << 20;

/// Standard input to its end.
///
/// # Errors
/// If it cannot be read, or is longer than 4 MiB.
pub(super) fn read_all() -> Result<Vec<u8>, Fault> {
    let mut all = Vec::new();
    let read = io::stdin().lock().take(BYTES_MAX).read_to_end(&mut all);
    checked(read, all)
}

/// The next line of standard input without its end, or `None` at the end.
///
/// # Errors
/// As [`read_all`].
pub(super) fn read_line() -> Result<Option<Vec<u8>>, Fault> {
    let mut line = Vec::new();
    let read = io::stdin().lock().take(BYTES_MAX).read_until(b'\n', &mut line);
    let mut line = checked(read, line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(line))
}

fn checked(read: io::Result<usize>, bytes: Vec<u8>) -> Result<Vec<u8>, Fault> {
    let wrong = |reason: String| Fault::new(ExitCode::Usage, format!("standard input: {reason}"));
    read.map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 == BYTES_MAX { Err(wrong("a value is longer than 4 MiB".to_owned())) } else { Ok(bytes) }
}

/// Writes a value and a line end.
///
/// # Errors
/// Also if the reader has closed the pipe.
pub(super) fn show(value: &[u8]) -> Result<(), Fault> {
    write(&[value, b"\n"].concat())
}

/// Writes a value as it is.
///
/// # Errors
/// As [`show`].
pub(super) fn write(value: &[u8]) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    let failed = |error| Fault::new(ExitCode::Internal, format!("standard output cannot be written: {error}"));
    out.write_all(value).and_then(|()| out.flush()).map_err(failed)
}
