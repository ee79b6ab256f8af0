//! Every record of the client protocol, by the field order of the wire.
//!
//! A record is a `Copy` struct of public fields that borrows strings, buffers and vectors from its frame. Strings and
//! buffers are `Option` because jute has null; whether null is acceptable is the server's decision. Integers that
//! name something (modes, event types) stay integers; `consts` names them. Bytes behind a record are left unread.
//! Stateless, any core. Knows layouts only.

#[macro_use]
mod record_macro;

mod connect;
mod extension;
mod request;
mod response;
mod shared;

pub use crate::vector::{ChildrenEncoder, Strings};
pub use connect::*;
pub use extension::*;
pub use request::*;
pub use response::*;
pub use shared::*;
