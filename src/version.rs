//! Which program this is.

/// The version for clients: the protocol spoken, then this program.
pub(crate) const VERSION: &str =
    concat!("3.9.5-corral-", env!("CARGO_PKG_VERSION"), ", built on ", env!("CORRAL_BUILT"));
