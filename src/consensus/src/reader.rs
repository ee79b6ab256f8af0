//! Reads integers and slices from the front of a shared buffer, never past its end. A leaf, for every decoder of this
//! crate. An error is what is wrong with the bytes, in a few words.

use bytes::Bytes;

use crate::types::ServerId;

/// The bytes of one encoded value, read from the front.
pub(crate) struct Reader<'a> {
    whole: &'a Bytes,
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(whole: &'a Bytes) -> Reader<'a> {
        Reader { whole, left: whole }
    }

    /// The next `N` bytes.
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (head, tail) = self.left.split_first_chunk::<N>().ok_or("too short")?;
        self.left = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, &'static str> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, &'static str> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, &'static str> {
        self.take().map(u32::from_le_bytes)
    }

    /// A server id, of 64 bits. It may be 0.
    pub(crate) fn server(&mut self) -> Result<ServerId, &'static str> {
        u8::try_from(self.u64()?).map(ServerId).map_err(|_| "a server id beyond 255")
    }

    pub(crate) fn u64(&mut self) -> Result<u64, &'static str> {
        self.take().map(u64::from_le_bytes)
    }

    /// Two flags in one byte: bit 0, bit 1.
    pub(crate) fn flags(&mut self) -> Result<(bool, bool), &'static str> {
        let flags = self.u8()?;
        if flags > 3 { Err("unknown flag") } else { Ok((flags & 1 != 0, flags & 2 != 0)) }
    }

    /// The next `length` bytes; they share the buffer.
    pub(crate) fn share(&mut self, length: usize) -> Result<Bytes, &'static str> {
        let (head, tail) = self.left.split_at_checked(length).ok_or("too short")?;
        self.left = tail;
        Ok(self.whole.slice_ref(head))
    }

    /// All bytes that are left; they share the buffer.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.whole.slice_ref(std::mem::take(&mut self.left))
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
