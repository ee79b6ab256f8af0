//! Standard output of the sub-commands.
//!
//! The main thread only.

use std::io::{self, Write as _};

use rustix::fs::{OFlags, fcntl_getfl, fstat, makedev};
use tokio::runtime;

use crate::exit::{ExitCode, Fault};

/// Text of another program, without characters that a terminal acts on.
pub(super) fn plain(text: &str) -> String {
    let shown = |one: char| if one.is_ascii_graphic() || one == ' ' || one.is_alphanumeric() { one } else { '?' };
    text.chars().map(shown).collect()
}

/// Runs `work` in a runtime of tokio with a thread for the session. That goes on while this one waits for a reader of its output.
///
/// # Errors
/// If the runtime cannot start, or `work` fails.
pub(super) fn in_session_runtime<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let runtime = built(runtime::Builder::new_multi_thread().worker_threads(1))?;
    let done = runtime.block_on(work);
    // A thread may still wait, for the system's resolver or for standard input.
    runtime.shutdown_background();
    done
}

/// A runtime of tokio on this thread.
pub(super) fn runtime() -> Result<runtime::Runtime, Fault> {
    built(&mut runtime::Builder::new_current_thread())
}

fn built(builder: &mut runtime::Builder) -> Result<runtime::Runtime, Fault> {
    let failed = |error: io::Error| Fault::new(ExitCode::Internal, format!("tokio cannot start: {error}"));
    builder.enable_all().build().map_err(failed)
}

/// Writes text to standard output.
pub(super) fn print(text: &str) -> Result<(), Fault> {
    let mut out = Output::new();
    out.write(text)?;
    out.finish()
}

/// Whether what is written is lost although writing succeeds: the runtime of Rust opens a closed standard output as /dev/null, for
/// reading and writing. A shell opens it for writing alone.
pub(super) fn is_closed() -> bool {
    const NULL: (u32, u32) = (1, 3);
    let is_null = fstat(io::stdout()).is_ok_and(|stat| stat.st_rdev == makedev(NULL.0, NULL.1));
    is_null && fcntl_getfl(io::stdout()).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}

/// Writes a fault to standard error, each of its lines with the program's name in front.
pub(crate) fn print_fault(fault: &Fault) {
    note(&fault.sentence);
}

/// Writes text to standard error, each of its lines with the program's name in front.
pub(super) fn note(text: &str) {
    let mut stderr = io::stderr().lock();
    for line in text.lines() {
        // Without a standard error the exit code remains.
        let _ = writeln!(stderr, "corral: {line}");
    }
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
