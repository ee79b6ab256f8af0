//! Common parts of the messages of fixed size: magic, version and checksum, and how reading one fails.
//!
//! Pure, on any thread. It does not know what is between version and checksum.

/// Version of handshake, answer and frames.
pub const VERSION: u16 = 3;
/// Bytes of a [`token`](crate::secret::token).
pub const TOKEN_BYTES: usize = 7;

/// Why bytes are not a valid message of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The first bytes are those of another protocol.
    #[error("it does not speak the protocol between servers")]
    Magic,
    /// The sender has another version.
    #[error("it speaks version {0} of the protocol between servers, this server version {VERSION}")]
    Version(u16),
    /// The bytes were changed on the way.
    #[error("the checksum is wrong")]
    Checksum,
    /// A field has a value that no server of this version sends.
    #[error("{0}")]
    Field(&'static str),
}

/// Stores the checksum of the first `checked` bytes behind them.
pub(crate) fn seal(bytes: &mut [u8], checked: usize) {
    let checksum = crc32c::crc32c(&bytes[..checked]);
    bytes[checked..].copy_from_slice(&checksum.to_le_bytes());
}

/// Compares magic, version and checksum. Errors: the first that does not match.
pub(crate) fn check(bytes: &[u8], magic: [u8; 4], checked: usize) -> Result<(), HandshakeError> {
    if bytes[..4] != magic {
        return Err(HandshakeError::Magic);
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version != VERSION {
        return Err(HandshakeError::Version(version));
    }
    let stated: [u8; 4] = bytes[checked..].try_into().expect("the checksum is the last field");
    if crc32c::crc32c(&bytes[..checked]) != u32::from_le_bytes(stated) {
        return Err(HandshakeError::Checksum);
    }
    Ok(())
}

/// The `u64` at an offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
