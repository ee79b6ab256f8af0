//! The control plane: signals, four-letter words, and what the process knows of itself. Plain threads, off the data
//! path.

mod facts;
mod signals;
mod words;

pub(crate) use facts::Facts;
pub(crate) use signals::Signals;
pub(crate) use words::Words;
