//! Immutable text and bytes that several cores hold at once: one allocation, reference counted, archived as a plain
//! string or byte vector. The only sharing between cores there is.

use alloc::string::String;
use alloc::sync::Arc;
use core::ops::Deref;
use rkyv::rancor::{Fallible, Source};
use rkyv::ser::{Allocator, Writer};
use rkyv::string::{ArchivedString, StringResolver};
use rkyv::vec::{ArchivedVec, VecResolver};
use rkyv::{Archive, Deserialize, Place, Serialize};

/// Shared immutable text: paths, names, ids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(pub Arc<str>);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(Arc::from(text))
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl core::borrow::Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Archive for Text {
    type Archived = ArchivedString;
    type Resolver = StringResolver;
    fn resolve(&self, resolver: Self::Resolver, out: Place<Self::Archived>) {
        ArchivedString::resolve_from_str(&self.0, resolver, out);
    }
}

impl<S: Fallible<Error: Source> + Writer + ?Sized> Serialize<S> for Text {
    fn serialize(&self, serializer: &mut S) -> Result<Self::Resolver, S::Error> {
        ArchivedString::serialize_from_str(&self.0, serializer)
    }
}

impl<D: Fallible + ?Sized> Deserialize<Text, D> for ArchivedString {
    fn deserialize(&self, _: &mut D) -> Result<Text, D::Error> {
        Ok(Text::from(self.as_str()))
    }
}

/// Shared immutable bytes: a znode's data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Data(pub Arc<[u8]>);

impl From<&[u8]> for Data {
    fn from(bytes: &[u8]) -> Self {
        Self(Arc::from(bytes))
    }
}

impl Deref for Data {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Archive for Data {
    type Archived = ArchivedVec<u8>;
    type Resolver = VecResolver;
    fn resolve(&self, resolver: Self::Resolver, out: Place<Self::Archived>) {
        ArchivedVec::resolve_from_len(self.0.len(), resolver, out);
    }
}

impl<S: Fallible + Allocator + Writer + ?Sized> Serialize<S> for Data {
    fn serialize(&self, serializer: &mut S) -> Result<Self::Resolver, S::Error> {
        ArchivedVec::<u8>::serialize_from_slice(&self.0, serializer)
    }
}

impl<D: Fallible + ?Sized> Deserialize<Data, D> for ArchivedVec<u8> {
    fn deserialize(&self, _: &mut D) -> Result<Data, D::Error> {
        Ok(Data(Arc::from(self.as_slice())))
    }
}

/// A path together with the hashes by which every view of this server finds it and its parent.
///
/// Computed once, where the change is made; a shard that applies the change hashes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashedPath {
    pub path: Text,
    pub hash: u64,
    pub parent_hash: u64,
}

impl HashedPath {
    /// The path of the parent; the root's parent is the root itself.
    pub fn parent(&self) -> &str {
        crate::path::parent(&self.path)
    }

    /// The last component.
    pub fn name(&self) -> &str {
        crate::path::name(&self.path)
    }
}
