//! The fields of a batch as bytes, see [`crate::command`].
//!
//! Numbers that are mostly small are varints of 7 bits a byte, signed ones folded to and fro (0, -1, 1, -2 ..). Text and data
//! come behind their length. Knows neither commands nor operations.

use crate::ids::SessionId;
use crate::shared::{Data, Text};
use crate::tree::acl::{AclEntry, AclSpec};
use alloc::vec::Vec;
use corral_types::Reader;

/// Weight of an ACL entry beside its texts, in bytes of memory by and large.
pub(crate) const ACL_ENTRY_WEIGHT: usize = 32;

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// As [`put_data`].
pub(crate) fn put_text(out: &mut Vec<u8>, text: Option<&Text>) {
    put_maybe(out, text.map(|text| text.as_bytes()));
}

/// 0 is none, anything else one more than the length.
pub(crate) fn put_data(out: &mut Vec<u8>, data: Option<&Data>) {
    put_maybe(out, data.map(|data| &**data));
}

pub(crate) fn put_maybe(out: &mut Vec<u8>, data: Option<&[u8]>) {
    match data {
        None => out.push(0),
        Some(data) => {
            put_varint(out, data.len() as u64 + 1);
            out.extend_from_slice(data);
        }
    }
}

pub(crate) fn put_list<T>(out: &mut Vec<u8>, list: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_varint(out, list.len() as u64);
    for item in list {
        put(out, item);
    }
}

pub(crate) fn put_acl(out: &mut Vec<u8>, acl: &AclSpec) {
    let (number, entries) = match acl {
        AclSpec::Open => (0, None),
        AclSpec::Missing => (1, None),
        AclSpec::List(entries) => (2, Some(entries)),
        AclSpec::Malformed => (3, None),
        AclSpec::BrokenOff(entries) => (4, Some(entries)),
    };
    out.push(number);
    if let Some(entries) = entries {
        put_list(out, entries, |out, AclEntry { perms, scheme, id }| {
            put_signed(out, i64::from(*perms));
            put_bytes(out, scheme.as_bytes());
            put_bytes(out, id.as_bytes());
        });
    }
}

/// The bytes left to be read. `None` from any reader: no batch.
pub(crate) struct Take<'a> {
    pub(crate) left: Reader<'a>,
    /// Most weight of the items that are yet to come.
    pub(crate) weight_left: usize,
    /// The batch has `features::ADMITTED`.
    pub(crate) admitted: bool,
}

impl<'a> Take<'a> {
    /// The shortest form alone.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.left.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || byte == 0 && shift > 0 {
                return None;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.varint()?).ok()
    }

    pub(crate) fn signed<T: TryFrom<i64>>(&mut self) -> Option<T> {
        let folded = self.varint()?;
        T::try_from((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed()).ok()
    }

    pub(crate) fn session(&mut self) -> Option<SessionId> {
        self.left.array().map(i64::from_le_bytes).map(SessionId)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let bytes = self.number()?;
        self.left.bytes(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<Text> {
        core::str::from_utf8(self.bytes()?).ok().map(Text::from)
    }

    pub(crate) fn data(&mut self) -> Option<Option<Data>> {
        Some(self.maybe()?.map(Data::from))
    }

    pub(crate) fn maybe_text(&mut self) -> Option<Option<Text>> {
        match self.maybe()? {
            None => Some(None),
            Some(bytes) => core::str::from_utf8(bytes).ok().map(|text| Some(Text::from(text))),
        }
    }

    pub(crate) fn maybe(&mut self) -> Option<Option<&'a [u8]>> {
        match self.number::<usize>()? {
            0 => Some(None),
            more => self.left.bytes(more - 1).map(Some),
        }
    }

    /// A list of items that take at least `item_bytes_min`, and weigh `weight`, each.
    pub(crate) fn list<T>(
        &mut self,
        item_bytes_min: usize,
        weight: usize,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = self.number::<usize>()?;
        if count > self.left.len() / item_bytes_min {
            return None;
        }
        self.weight_left = self.weight_left.checked_sub(count.checked_mul(weight)?)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(take(self)?);
        }
        Some(list)
    }

    pub(crate) fn acl(&mut self) -> Option<AclSpec> {
        const ENTRY_BYTES_MIN: usize = 3;
        let entry = |take: &mut Self| Some(AclEntry { perms: take.signed()?, scheme: take.text()?, id: take.text()? });
        Some(match self.left.u8()? {
            0 => AclSpec::Open,
            1 => AclSpec::Missing,
            2 => AclSpec::List(self.list(ENTRY_BYTES_MIN, ACL_ENTRY_WEIGHT, entry)?),
            3 => AclSpec::Malformed,
            4 => AclSpec::BrokenOff(self.list(ENTRY_BYTES_MIN, ACL_ENTRY_WEIGHT, entry)?),
            _ => return None,
        })
    }
}
