//! Standard output of the sub-commands.
//!
//! The main thread only.

use std::io::{self, Write as _};

use time::UtcDateTime;

use crate::exit::{ExitCode, Fault};

/// Text of another program, without characters that a terminal acts on.
pub(super) fn plain(text: &str) -> String {
    let shown = |one: char| if one.is_ascii_graphic() || one == ' ' || one.is_alphanumeric() { one } else { '?' };
    text.chars().map(shown).collect()
}

/// Milliseconds since 1970 as RFC 3339 has them, in UTC.
pub(super) fn utc(ms: i64) -> String {
    let Ok(at) = UtcDateTime::from_unix_timestamp(ms.div_euclid(1000)) else {
        return format!("{ms} ms");
    };
    let (date, (hour, minute, second)) = (at.date(), at.as_hms());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms.rem_euclid(1000))
}

/// Writes text to standard output.
pub(super) fn print(text: &str) -> Result<(), Fault> {
    let mut out = Output::new();
    out.write(text)?;
    out.finish()
}

/// Buffered standard output. A reader that went away, as in `corral ... | head`, is no fault: the rest is not written.
pub(super) struct Output {
    writer: io::BufWriter<io::StdoutLock<'static>>,
    open: bool,
}

impl Output {
    pub(super) fn new() -> Output {
        Output { writer: io::BufWriter::new(io::stdout().lock()), open: true }
    }

    /// Writes a line; false after the reader has closed the pipe.
    pub(super) fn line(&mut self, line: &str) -> Result<bool, Fault> {
        self.write(line)?;
        self.write("\n")?;
        Ok(self.open)
    }

    pub(super) fn write(&mut self, text: &str) -> Result<(), Fault> {
        if !self.open {
            return Ok(());
        }
        let written = self.writer.write_all(text.as_bytes());
        self.judge(written)
    }

    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        if !self.open {
            return Ok(());
        }
        let flushed = self.writer.flush();
        self.judge(flushed)
    }

    fn judge(&mut self, result: io::Result<()>) -> Result<(), Fault> {
        match result {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.open = false;
                Ok(())
            }
            Err(error) => Err(Fault::new(ExitCode::Internal, format!("standard output cannot be written: {error}"))),
        }
    }
}
