//! The control plane: signals, four-letter commands, and what the process knows of itself. Plain threads, off the data
//! path.

mod facts;
mod four_letter;
mod signals;

pub(crate) use facts::Facts;
pub(crate) use four_letter::FourLetterResponder;
pub(crate) use signals::Signals;
