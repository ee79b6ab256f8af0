//! Reads fields from the front of a shared buffer, never past its end. A leaf, for every decoder of this crate. An error
//! is what is wrong with the bytes, in a few words.

use bytes::Bytes;

use crate::types::ServerId;

/// The bytes of one encoded value, read from the front.
pub(crate) struct Reader<'a> {
    whole: &'a Bytes,
    left: corral_types::Reader<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(whole: &'a Bytes) -> Reader<'a> {
        Reader { whole, left: corral_types::Reader::new(whole) }
    }

    /// The next `N` bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        self.left.array().ok_or("too short")
    }

    pub(crate) fn u8(&mut self) -> Result<u8, &'static str> {
        self.left.u8().ok_or("too short")
    }

    pub(crate) fn u16(&mut self) -> Result<u16, &'static str> {
        self.left.u16().ok_or("too short")
    }

    pub(crate) fn u32(&mut self) -> Result<u32, &'static str> {
        self.left.u32().ok_or("too short")
    }

    /// A server id, of 64 bits. It may be 0.
    pub(crate) fn server(&mut self) -> Result<ServerId, &'static str> {
        u8::try_from(self.u64()?).map(ServerId).map_err(|_| "a server id beyond 255")
    }

    pub(crate) fn u64(&mut self) -> Result<u64, &'static str> {
        self.left.u64().ok_or("too short")
    }

    /// Two flags in one byte: bit 0, bit 1.
    pub(crate) fn flags(&mut self) -> Result<(bool, bool), &'static str> {
        let flags = self.u8()?;
        if flags > 3 { Err("unknown flag") } else { Ok((flags & 1 != 0, flags & 2 != 0)) }
    }

    /// The next `length` bytes; they share the buffer.
    pub(crate) fn share(&mut self, length: usize) -> Result<Bytes, &'static str> {
        self.left.bytes(length).map(|bytes| self.whole.slice_ref(bytes)).ok_or("too short")
    }

    /// All bytes that are left; they share the buffer.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.whole.slice_ref(self.left.rest())
    }

    /// How many bytes are left.
    pub(crate) fn left(&self) -> usize {
        self.left.len()
    }

    /// Whether no byte is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}
