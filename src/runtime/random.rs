//! Random bytes of the system. Any thread.

use crate::exit::{ExitCode, Fault};

/// Random bytes.
///
/// # Errors
/// When the system has none.
pub(crate) fn random<const BYTES: usize>() -> Result<[u8; BYTES], Fault> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Fault::new(ExitCode::Internal, format!("no random bytes: {error}")))?;
    Ok(bytes)
}
