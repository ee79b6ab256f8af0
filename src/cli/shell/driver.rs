//! Runs the commands of a shell one after the other, and shows the events of its watches meanwhile.

use std::io::{self, BufRead as _, Read as _};
use std::thread;

use corral_client::Events;
use tokio::sync::mpsc;

use crate::cli::shell::session::Shell;
use crate::cli::signals::Stops;
use crate::exit::{ExitCode, Fault};

/// Of a line, with the data in it. Servers take requests of 1 MiB.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// Runs commands one after the other, and shows events meanwhile.
pub(super) struct Driver<'a> {
    shell: &'a Shell<'a>,
    events: Events,
    stops: Stops,
    /// Of the last command.
    code: ExitCode,
}

impl<'a> Driver<'a> {
    pub(super) fn new(shell: &'a Shell<'a>, events: Events, stops: Stops) -> Driver<'a> {
        Driver { shell, events, stops, code: ExitCode::Ok }
    }

    pub(super) fn shell(&self) -> &'a Shell<'a> {
        self.shell
    }

    /// Of the last command.
    pub(super) fn code(&self) -> ExitCode {
        self.code
    }

    /// Waits for something, and shows events meanwhile. `None` at a signal.
    pub(super) async fn wait<T>(&mut self, awaited: impl Future<Output = Option<T>>) -> Option<T> {
        let mut awaited = std::pin::pin!(awaited);
        loop {
            tokio::select! {
                biased;
                Some(event) = self.events.next() => self.shell.tell(&event),
                result = &mut awaited => return result,
                _ = self.stops.next() => {
                    self.code = ExitCode::Interrupted;
                    return None;
                }
            }
        }
    }

    /// Runs a command until its end, or until SIGINT.
    pub(super) async fn take(&mut self, command: impl Future<Output = Result<(), Fault>>) {
        let shell = self.shell;
        let mut command = std::pin::pin!(command);
        let result = loop {
            tokio::select! {
                biased;
                Some(event) = self.events.next() => shell.tell(&event),
                result = &mut command => break result,
                _ = self.stops.next() => break Err(Fault::new(ExitCode::Interrupted, "interrupted")),
            }
        };
        while let Some(event) = self.events.try_next() {
            shell.tell(&event);
        }
        shell.screen.end_list();
        self.code = match result {
            Ok(()) if shell.quits() => self.code,
            Ok(()) => ExitCode::Ok,
            Err(fault) => {
                if !fault.sentence.is_empty() {
                    shell.screen.error(&fault.sentence);
                }
                fault.code
            }
        };
        shell.screen.flush();
    }

    /// Runs the lines of standard input until it ends, `quit`, or SIGINT.
    pub(super) async fn take_lines(&mut self) {
        let (sender, mut lines) = mpsc::channel(1);
        thread::spawn(move || read_lines(&sender));
        while !self.shell.quits() && self.code != ExitCode::Interrupted {
            match self.wait(lines.recv()).await {
                Some(Ok(line)) if line.trim().is_empty() => {}
                Some(Ok(line)) => self.take(self.shell.run_line(&line)).await,
                Some(Err(fault)) => {
                    self.take(async { Err(fault) }).await;
                    break;
                }
                None => break,
            }
        }
    }
}

/// Gives each line of standard input.
fn read_lines(lines: &mpsc::Sender<Result<String, Fault>>) {
    let mut input = io::stdin().lock();
    for number in 1_u64.. {
        let mut line = Vec::new();
        let wrong = |reason: &str| Fault::new(ExitCode::Usage, format!("line {number}: {reason}"));
        let read = match input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) if line.len() as u64 == LINE_BYTES_MAX => Err(wrong("it is longer than 4 MiB")),
            Ok(_) => String::from_utf8(line).map_err(|_| wrong("it is not UTF-8; give such data with set -b")),
            Err(error) => Err(wrong(&format!("it cannot be read: {error}"))),
        };
        let is_last = read.is_err();
        let line = read.map(|line| line.trim_end_matches(['\n', '\r']).to_owned());
        if lines.blocking_send(line).is_err() || is_last {
            return;
        }
    }
}
