//! `corral counter`: a whole number that many processes change.

use clap::{Args, ValueEnum};
use corral_client::{CreateMode, Error, ErrorCode, Write};
use corral_core::path;

use crate::cli::client::{Connection, failed};
use crate::cli::output::print;
use crate::cli::recipes::session::{self, Session, creation, unique};
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral counter`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The counter
    path: String,
    /// Add this number, which may be negative
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    add: Option<i64>,
    /// Set this number
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, conflicts_with = "add")]
    set: Option<i64>,
    /// How the number is written
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The form of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Digits, as kazoo's Counter writes whole numbers
    Text,
    /// Four bytes, as Curator's SharedCount and kazoo's Counter with support_curator
    Int32,
    /// Eight bytes, as Curator's DistributedAtomicLong
    Int64,
}

impl Format {
    /// Nothing is 0.
    fn read(self, data: &[u8]) -> Option<i64> {
        if data.is_empty() {
            return Some(0);
        }
        match self {
            Format::Text => std::str::from_utf8(data).ok()?.trim().parse().ok(),
            Format::Int32 => data.try_into().ok().map(i32::from_be_bytes).map(i64::from),
            Format::Int64 => data.try_into().ok().map(i64::from_be_bytes),
        }
    }

    fn write(self, number: i64) -> Option<Vec<u8>> {
        match self {
            Format::Text => Some(number.to_string().into_bytes()),
            Format::Int32 => i32::try_from(number).ok().map(|number| number.to_be_bytes().to_vec()),
            Format::Int64 => Some(number.to_be_bytes().to_vec()),
        }
    }
}

/// Prints the number, after the change if there is one.
///
/// # Errors
/// If the servers cannot be asked, the data are no number, or the number does not fit.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Fault> {
    let Arguments { connection, path, .. } = arguments;
    session::run(connection, None, path, async |session, stops| {
        let number = session.within(stops, change(session, arguments)).await?;
        print(&format!("{number}\n"))?;
        Ok(ExitCode::Ok.number())
    })
}

/// Changes the number in one transaction with an ephemeral znode, which tells whether it was done, should the answer be lost.
async fn change(session: &Session, arguments: &Arguments) -> Result<i64, Fault> {
    let Arguments { path, add, set, format, .. } = arguments;
    let conflict = |reason: String| Fault::new(ExitCode::Conflict, format!("{path}: {reason}"));
    let mark = path::child(path, &format!("{:032x}", unique()?));
    loop {
        let (data, version) = match session.retry(|client| client.get_data(path, None)).await {
            Ok((data, stat)) => (data.unwrap_or_default(), Some(stat.version)),
            Err(Error { code: ErrorCode::NoNode, .. }) => (Vec::new(), None),
            Err(error) => return Err(failed(path, &error)),
        };
        let known = match (format.read(&data), set) {
            (Some(number), _) => number,
            (None, Some(_)) => 0,
            (None, None) => return Err(conflict("the data are no number of this format; see --format".to_owned())),
        };
        let number = match (add, set) {
            (None, None) => return Ok(known),
            (Some(add), _) => {
                known.checked_add(*add).ok_or_else(|| conflict(format!("{known} + {add} does not fit")))?
            }
            (None, Some(set)) => *set,
        };
        let data = format.write(number).ok_or_else(|| conflict(format!("{number} does not fit into four bytes")))?;
        let data = Some(data.as_slice());
        let write = match version {
            Some(_) => Write::SetData { path, data, version },
            None => Write::Create { path, creation: creation(data, CreateMode::Persistent) },
        };
        let mark_it = Write::Create { path: &mark, creation: creation(None, CreateMode::Ephemeral) };
        match session.once(&[write, mark_it], async || Ok(session.stat(&mark).await?.is_some())).await {
            Ok(()) => return Ok(number),
            Err(Error { code: ErrorCode::NoNode, .. }) if version.is_none() => session.make_parent(path).await?,
            // Another process was first.
            Err(Error { code: ErrorCode::BadVersion | ErrorCode::NodeExists | ErrorCode::NoNode, .. }) => {}
            Err(error) => return Err(failed(path, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_libraries_write_them() {
        for (format, number, data) in
            [(Format::Text, -12, &b"-12"[..]), (Format::Int32, 258, &[0, 0, 1, 2]), (Format::Int64, -1, &[255; 8])]
        {
            assert_eq!(format.write(number).as_deref(), Some(data));
            assert_eq!(format.read(data), Some(number));
            assert_eq!(format.read(b""), Some(0), "a new counter");
            assert_eq!(format.read(b"1.5"), None);
        }
        assert_eq!(Format::Int32.write(1 << 31), None);
    }
}
