//! `corral archive`: ships what a running server commits into an archive, from which each moment can be restored. The main thread
//! only.

pub(super) mod files;
pub(super) mod restore;

use std::fs::DirBuilder;
use std::mem;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use corral_backup::BackupError;
use corral_backup::entries;
use corral_backup::envelope::{self, Head, Parser};
use corral_backup::pack::PublicKey;
use corral_core::command::Batch;
use indicatif::{HumanBytes, ProgressBar};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::cli::archive::files::{Archive, Chain, holds_data};
use crate::cli::backup::{public_key, receive};
use crate::cli::backup_file::{NewBackup, STANDARD, extension, object, unwritable};
use crate::cli::http::{NOT_REACHED, Part, Server, bearer};
use crate::cli::output::{self, print_fault};
use crate::cli::time::utc;
use crate::data::backups::ENTRIES_BYTES_MAX;
use crate::exit::{ExitCode, Fault};
use crate::runtime::clock::Clock;

/// How often a pause looks for a signal.
const PAUSE: Duration = Duration::from_millis(100);

/// Arguments of `corral archive`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Server,
    /// A directory, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "ARCHIVE")]
    to: PathBuf,
    /// File with a token of the server's admin.token_file
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Seconds from one look for new entries to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    every: u64,
    /// Hours from one base to the next; a restore begins at a base. 0 is one at each look that finds new entries
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=8_760))]
    base_every: u32,
    /// Ship what there is now, and end
    #[arg(long)]
    once: bool,
    /// The server's admin.command_url
    #[arg(long, value_name = "PATH", default_value = "/commands")]
    command_url: String,
    /// Encrypt for this public key of age-keygen (age1...); may be repeated, and each key decrypts it
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    encrypt: Vec<PublicKey>,
}

/// Ships until SIGTERM or SIGINT, or once. Everything committed before the signal is shipped.
///
/// # Errors
/// If the first look fails. Those later are tried again. If the last look fails, and not only because the server does not run.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let stops = stops()?;
    if arguments.to == Path::new(STANDARD) || holds_data(&arguments.to) {
        let sentence =
            format!("{}: an archive is a directory of its own, or s3://BUCKET/PREFIX", arguments.to.display());
        return Err(Fault::new(ExitCode::Config, sentence));
    }
    if object(&arguments.to).is_none() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&arguments.to);
        made.map_err(|error| unwritable(&arguments.to, &error))?;
    }
    let archive = Archive::list(&arguments.to)?;
    if let Some(last) = archive.chains.last()
        && last.is_encrypted() == arguments.encrypt.is_empty()
    {
        let remedy =
            if last.is_encrypted() { "is encrypted: give --encrypt" } else { "is not encrypted: leave --encrypt out" };
        let sentence = format!("{}: the archive {remedy}, or another archive", arguments.to.display());
        return Err(Fault::new(ExitCode::Config, sentence));
    }
    // The chain before a base without entries may lack the last ones up to the base.
    let open = if archive.chains.last().is_some_and(|last| !last.has_entries()) { 2 } else { 1 };
    let from = archive.chains.len().saturating_sub(open);
    let mut shipper = Shipper { arguments, archive, from, looked_ms: 0, is_new: false };
    shipper.round()?;
    if arguments.once {
        return shipper.describe("");
    }
    let mut is_told = false;
    loop {
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_secs(arguments.every) && !stops.load(Ordering::Relaxed) {
            thread::sleep(PAUSE);
        }
        let is_last = stops.load(Ordering::Relaxed);
        match shipper.round() {
            Err(fault) if !is_last => print_fault(&Fault { sentence: format!("{fault}; trying again"), ..fault }),
            // The server keeps the rest for the next start.
            Err(fault) if fault.sentence.contains(NOT_REACHED) => {
                return shipper.describe("the server was not reached: ");
            }
            Err(fault) => return Err(fault),
            Ok(()) if is_last => return shipper.describe(""),
            Ok(()) if !shipper.is_new && !mem::replace(&mut is_told, true) => shipper.describe("")?,
            Ok(()) => {}
        }
    }
}

/// Is set by the first signal. The second one ends the process.
fn stops() -> Result<Arc<AtomicBool>, Fault> {
    let stops = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        flag::register_conditional_default(signal, Arc::clone(&stops))
            .and_then(|_| flag::register(signal, Arc::clone(&stops)))
            .map_err(|error| Fault::new(ExitCode::Internal, format!("cannot handle signals: {error}")))?;
    }
    Ok(stops)
}

struct Shipper<'a> {
    arguments: &'a Arguments,
    archive: Archive,
    /// The first chain that does not have everything yet.
    from: usize,
    /// When the last look that found nothing more began, by the clock of this host. 0 before that.
    looked_ms: i64,
    /// Whether the last look found anything new.
    is_new: bool,
}

/// Entries in the log of the server behind a chain.
enum Found {
    /// All that is new, or nothing.
    All,
    /// There may be more.
    Some,
    /// The log does not hold the last entry of the chain.
    Gap,
}

impl Shipper<'_> {
    /// Ships everything that is new. If the last chain cannot go on, a new base follows, and then what the chains before lack up to
    /// it: no moment is missing.
    fn round(&mut self) -> Result<(), Fault> {
        let authorization = bearer(&self.arguments.token_file)?;
        self.is_new = false;
        let mut has_base = self.is_base_due();
        if has_base {
            self.ship_base(&authorization)?;
        }
        while self.ship_all(&authorization)? && !has_base {
            self.ship_base(&authorization)?;
            has_base = true;
        }
        self.from = self.archive.chains.len().saturating_sub(1);
        Ok(())
    }

    /// Says where the archive ends.
    fn describe(&self, front: &str) -> Result<(), Fault> {
        let front = if front.is_empty() && !self.is_new { "nothing new: " } else { front };
        let zxid = self.archive.chains.last().map_or(0, Chain::end_zxid);
        let had = match self.looked_ms {
            0 => String::new(),
            ms => format!(", and has everything that the server had at {}", utc(ms)),
        };
        output::print(&format!("{front}the archive ends at zxid 0x{zxid:x}{had}\n"))
    }

    /// Ships what is new behind each chain. Whether the last one cannot go on.
    fn ship_all(&mut self, authorization: &str) -> Result<bool, Fault> {
        let (mut at, mut has_ended) = (self.from, false);
        while at < self.archive.chains.len() {
            match self.ship(at, authorization)? {
                Found::Some => {}
                Found::All => at += 1,
                Found::Gap => {
                    let chain = self.archive.chains.remove(at);
                    has_ended = at == self.archive.chains.len();
                    let name = chain.name;
                    output::print(&format!("{name} ends: the server's log is not known to go on from it\n"))?;
                }
            }
        }
        Ok(has_ended)
    }

    /// A base after which nothing was shipped is as good as a new one.
    fn is_base_due(&self) -> bool {
        let Some(last) = self.archive.chains.last() else { return true };
        let age_ms = Clock::start().wall().0.saturating_sub(last.time_ms);
        age_ms >= i64::from(self.arguments.base_every) * 3_600_000 && last.has_entries()
    }

    fn ship_base(&mut self, authorization: &str) -> Result<(), Fault> {
        let Self { arguments, archive, .. } = self;
        let (extension, mut path) = (extension(!arguments.encrypt.is_empty()), PathBuf::new());
        let command = format!("{}/backup", arguments.command_url.trim_end_matches('/'));
        let count = archive.chains.len();
        let received = receive(&arguments.server, (&command, authorization), &ProgressBar::hidden(), &mut |head| {
            path = archive.begin(head, extension).map_err(|error| unwritable(&arguments.to, &error))?;
            NewBackup::begin(&path, &arguments.encrypt)
        });
        let finished = received.and_then(|(head, out)| out.finish(&head).map(|_| head));
        let head = finished.inspect_err(|_| archive.chains.truncate(count))?;
        self.is_new = true;
        let name = archive.chains.last().map_or("", |chain| &chain.name);
        output::print(&format!("{name}: base, zxid 0x{:x}, {}\n", head.zxid, HumanBytes(head.bytes)))
    }

    /// Ships the next entries of a chain.
    fn ship(&mut self, chain: usize, authorization: &str) -> Result<Found, Fault> {
        let asked_ms = Clock::start().wall().0;
        let (head, body) = self.fetch(self.archive.chains[chain].end(), authorization)?;
        if body.is_empty() || !self.archive.has_base(&self.archive.chains[chain]) {
            return Ok(Found::Gap);
        }
        let (before, entries) = entries::decode(&body).map_err(|error| not_whole(&error))?;
        if !self.archive.chains[chain].goes_on_behind(before, head.salt) {
            return Ok(Found::Gap);
        }
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            self.looked_ms = asked_ms;
            return Ok(Found::All);
        };
        if head.place() != last.place {
            return Err(not_whole(&BackupError::Damaged("they are not those in the head".to_owned())));
        }
        let newest = entries.iter().rev().find_map(|entry| Batch::decode(entry.payload).ok());
        let last_zxid = |batch: &Batch| {
            batch.with_zxids().filter_map(|(zxid, _)| zxid).last().unwrap_or(batch.first_zxid.saturating_sub(1))
        };
        let (zxid, time) = newest.map_or((0, 0), |batch| (last_zxid(&batch), batch.time.0));
        let extension = extension(!self.arguments.encrypt.is_empty());
        let path = self.archive.add(chain, (first.place.index, last.place, zxid), extension);
        let written = NewBackup::begin(&path, &self.arguments.encrypt).and_then(|mut out| {
            out.write(|to| envelope::write(&head, &body, to))?;
            out.finish(&head)
        });
        written.inspect_err(|_| self.archive.chains[chain].forget_last())?;
        let (name, count, time) = (&self.archive.chains[chain].name, entries.len(), utc(time));
        output::print(&format!("{name}: {count} entries to zxid 0x{zxid:x} of {time}\n"))?;
        self.is_new = true;
        if entries::is_full(&entries) {
            return Ok(Found::Some);
        }
        self.looked_ms = asked_ms;
        Ok(Found::All)
    }

    /// The committed entries behind the one with this index.
    fn fetch(&self, index: u64, authorization: &str) -> Result<(Head, Vec<u8>), Fault> {
        let path = format!("{}/log_entries?after={index}", self.arguments.command_url.trim_end_matches('/'));
        let (mut parser, mut body) = (Parser::default(), Vec::new());
        self.arguments.server.fetch(&path, authorization, &mut |part| {
            let Part::Body(bytes) = part else { return Ok(()) };
            let mut take = |head: &Head, piece: &[u8]| {
                if head.bytes > ENTRIES_BYTES_MAX {
                    return Err(BackupError::Damaged(format!("it announces {} bytes", head.bytes)));
                }
                body.extend_from_slice(piece);
                Ok(())
            };
            parser.push(bytes, &mut take).map_err(|error: BackupError| not_whole(&error))
        })?;
        Ok((parser.finish().map_err(|error| not_whole(&error))?, body))
    }
}

fn not_whole(error: &BackupError) -> Fault {
    let sentence = format!("the log entries did not come whole: {error}; is it the admin address of corral?");
    Fault::new(ExitCode::Internal, sentence)
}
