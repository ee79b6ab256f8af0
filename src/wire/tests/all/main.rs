//! Integration tests of the wire protocol, in one binary to save links.

mod golden;
mod properties;
mod vectors;
