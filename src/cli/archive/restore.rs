//! Reading an archive: the state of a moment, and whether everything is whole.

use std::path::Path;

use clap::Args;
use corral_backup::entries::{self, Entry};
use corral_backup::envelope::Head;
use corral_backup::pack::Keys;
use indicatif::{ProgressBar, ProgressFinish};

use crate::cli::archive::files::{Archive, Chain, Entries, no_base};
use crate::cli::backup_file::{Source, scratch};
use crate::cli::log::filter::hex;
use crate::cli::output::Output;
use crate::cli::time::{self, utc};
use crate::data::backups;
use crate::exit::{ExitCode, Fault};
use crate::node::restore::Received;
use crate::node::roll_forward::{State, Until};

/// Which moment of an archive.
#[derive(Args)]
pub(in crate::cli) struct Moment {
    /// Of an archive: the state behind the transaction with this zxid, such as 0x500000a1c
    #[arg(long, value_name = "0xZXID", value_parser = hex, conflicts_with = "to_time")]
    to_zxid: Option<u64>,
    /// Of an archive: the state at this time, in UTC, such as 2026-11-24T02:49:48
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    to_time: Option<i64>,
}

impl Moment {
    /// Whether it can only be one of an archive.
    pub(in crate::cli) fn is_given(&self) -> bool {
        self.to_zxid.is_some() || self.to_time.is_some()
    }

    fn until(&self) -> Until {
        match (self.to_zxid, self.to_time) {
            (Some(zxid), _) => Until::Zxid(zxid),
            (_, Some(time)) => Until::Time(time),
            _ => Until::End,
        }
    }
}

/// A chain of an archive, and where to stop in it.
pub(in crate::cli) struct Wanted<'a> {
    archive: &'a Archive,
    chain: &'a Chain,
    /// The chain that follows.
    next: Option<&'a Chain>,
    until: Until,
    /// The moment is that of the last entry.
    is_end: bool,
}

impl<'a> Wanted<'a> {
    /// Chooses the newest chain with a base that is not behind the moment.
    ///
    /// # Errors
    /// If there is none.
    pub(in crate::cli) fn choose(archive: &'a Archive, moment: &Moment) -> Result<Wanted<'a>, Fault> {
        let until = moment.until();
        let fits = |chain: &&Chain| match until {
            Until::Zxid(zxid) => chain.zxid <= zxid,
            Until::Time(time) => chain.time_ms <= time,
            Until::End | Until::Index(_) => true,
        };
        // Histories may have the same zxids. The newest one counts.
        let preference = |chain: &&Chain| match until {
            Until::Zxid(zxid) => (chain.end_zxid() >= zxid, chain.time_ms),
            _ => (true, chain.time_ms),
        };
        let Some(chain) = archive.chains.iter().filter(fits).max_by_key(preference) else {
            let first = archive.chains.iter().min_by_key(|chain| chain.time_ms);
            let begin =
                first.map_or_else(String::new, |first| format!("zxid 0x{:x} of {}", first.zxid, utc(first.time_ms)));
            return Err(Fault::new(
                ExitCode::Config,
                format!("the archive begins later, with {begin}: give a later moment"),
            ));
        };
        let next = archive.chains.iter().find(|next| next.time_ms > chain.time_ms);
        Ok(Wanted { archive, chain, next, until, is_end: false })
    }

    /// The base, which is a backup.
    pub(in crate::cli) fn base(&self, of: &Source) -> Source {
        of.at(&self.archive.base(self.chain))
    }

    /// Applies the entries up to the moment, to a base with this head.
    ///
    /// # Errors
    /// If the archive does not have that moment, or is damaged.
    pub(in crate::cli) fn apply(
        &mut self,
        head: &Head,
        state: &mut State,
        keys: &Keys,
        bar: &ProgressBar,
    ) -> Result<(), Fault> {
        check_base(self.chain, head)?;
        state.awaited = self.next.map(|next| next.base).filter(|base| base.crc != 0);
        let is_reached = roll_forward(self.archive, self.chain, state, self.until, (keys, bar))?;
        let missing = |what: String| Err(Fault::new(ExitCode::Config, what));
        if is_reached {
            let found = state.zxid();
            return match self.until {
                Until::Zxid(wanted) if wanted != found => missing(format!(
                    "no transaction of the chain {} has zxid 0x{wanted:x}: give the one before, 0x{found:x}, or the directory of \
                     an older chain",
                    self.chain.name
                )),
                _ => Ok(()),
            };
        }
        check_gap(self.chain)?;
        self.is_end = true;
        let end = format!("zxid 0x{:x}{}", state.zxid(), at(state));
        match (self.until, self.next) {
            (Until::Zxid(_), _) => {
                let name = &self.chain.name;
                missing(format!("the chain {name} ends before, with {end}: for that leave --to-zxid away"))
            }
            // The next base may be of another history.
            (Until::Time(_), Some(next)) if !state.has_awaited => missing(format!(
                "the archive has nothing between {end} and {}; choose one of them with --to-zxid 0x{:x} or --to-time",
                utc(next.time_ms),
                state.zxid()
            )),
            _ => Ok(()),
        }
    }

    /// Tells what was reached.
    ///
    /// # Errors
    /// Those of the output.
    pub(in crate::cli) fn describe(&self, out: &mut Output, head: &Head, state: &State) -> Result<(), Fault> {
        out.line(&format!("chain         {}, of server {}", self.chain.name, head.server))?;
        out.line(&format!("base          zxid 0x{:x}, at {}", head.zxid, utc(head.time_ms)))?;
        let end = if self.is_end { "; the archive has no later one" } else { "" };
        out.line(&format!("entries       {} applied{}{end}", state.entries, at(state)))?;
        Ok(())
    }
}

/// When the last entry was proposed.
fn at(state: &State) -> String {
    state.time_ms.map_or_else(String::new, |ms| format!(", the last one of {}", utc(ms)))
}

/// Keys, and the display of progress.
type With<'a> = (&'a Keys, &'a ProgressBar);

fn roll_forward(
    archive: &Archive,
    chain: &Chain,
    state: &mut State,
    until: Until,
    (keys, bar): With<'_>,
) -> Result<bool, Fault> {
    state.roll_forward(until, &mut |index| {
        bar.set_message(format!("{}, entry {index}", chain.name));
        bar.tick();
        chain.entries(index).map(|file| read(archive, chain, file, keys)).transpose()
    })
}

/// Reads a file of entries, and compares them with its name.
fn read(archive: &Archive, chain: &Chain, file: &Entries, keys: &Keys) -> Result<(Head, Vec<u8>), Fault> {
    let source = Source::new(&archive.path_of(chain, file), None);
    let check = |(head, body): (Head, Vec<u8>)| {
        let (before, entries) = entries::decode(&body).map_err(backups::fault)?;
        let last = head.place();
        let is_named_right = before.index.checked_add(1) == Some(file.first) && last == file.last;
        if is_named_right && entries.last().is_some_and(|entry| entry.place == last) {
            Ok((head, body))
        } else {
            Err(damaged("its name is of other entries".to_owned()))
        }
    };
    backups::read_entries(source.open()?, keys).and_then(check).map_err(|fault| source.named(fault))
}

/// Is given the name of a file, and an entry in it. False if it wants no more.
pub(in crate::cli) type Take<'t> = dyn FnMut(&str, &Entry<'_>) -> Result<bool, Fault> + 't;

/// Gives the entries of an archive, or of one file of it, to `take`.
///
/// # Errors
/// If anything is damaged or missing, or cannot be read. Those of `take`.
pub(in crate::cli) fn each_entry(archive: Option<&Archive>, of: &Source, take: &mut Take<'_>) -> Result<(), Fault> {
    let keys = of.keys()?;
    // Gives the entries behind the one with this index.
    let mut give = |path: &Path, body: &[u8], end: u64| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let (_, entries) = entries::decode(body).map_err(backups::fault)?;
        for entry in entries.iter().filter(|entry| entry.place.index > end) {
            if !take(&name, entry)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let Some(archive) = archive else {
        let (_, body) = backups::read_entries(of.open()?, &keys).map_err(|fault| of.named(fault))?;
        return give(of.path(), &body, 0).map(drop);
    };
    for chain in &archive.chains {
        let mut end = chain.base.index;
        for file in chain.files() {
            let (_, body) = read(archive, chain, file, &keys)?;
            if !give(&archive.path_of(chain, file), &body, end)? {
                return Ok(());
            }
            end = file.last.index;
        }
        check_gap(chain)?;
    }
    Ok(())
}

fn check_base(chain: &Chain, head: &Head) -> Result<(), Fault> {
    if chain.is_of(head) {
        Ok(())
    } else {
        Err(damaged(format!("the base of {} has names of another one", chain.name)))
    }
}

fn check_gap(chain: &Chain) -> Result<(), Fault> {
    let Some(behind) = chain.behind_gap() else { return Ok(()) };
    let (name, first, last) = (&chain.name, chain.end() + 1, behind - 1);
    let end = chain.end_zxid();
    Err(damaged(format!("{name} lacks the entries {first} to {last}: the last moment before is --to-zxid 0x{end:x}")))
}

fn damaged(sentence: String) -> Fault {
    Fault::new(ExitCode::DataDamaged, sentence)
}

/// Reads all chains wholly, and compares the state that entries lead to with the next base. Gives the time of the last entry, or of
/// a later base, in milliseconds since 1970.
///
/// # Errors
/// If anything is damaged or missing, or cannot be read.
pub(in crate::cli) fn verify(archive: &Archive, of: &Source, out: &mut Output) -> Result<i64, Fault> {
    let bar = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    let keys = of.keys()?;
    let with = (&keys, &bar);
    let (mut before, mut last_ms): (Option<(&Chain, State)>, _) = (None, 0);
    for chain in &archive.chains {
        let (source, scratch) = (of.at(&archive.base(chain)), scratch()?);
        let received = Received::in_scratch(scratch.path(), source.open()?, &keys, &mut |_, _| {});
        let received = received.map_err(|fault| source.named(fault))?;
        check_base(chain, &received.head)?;
        let base = State::of(&received.head, &received.loaded)?;
        if let Some((former, mut state)) = before.take() {
            let joins = joins(archive, (former, &mut state), (chain, &base), with)?;
            last_ms =
                last_ms.max(finish(archive, (former, state), with, if joins { LEADS_ON } else { NOT_JOINED }, out)?);
        }
        before = Some((chain, base));
    }
    if let Some((chain, state)) = before {
        last_ms = last_ms.max(finish(archive, (chain, state), with, "", out)?);
    }
    archive.baseless.first().map_or(Ok(last_ms), |name| Err(no_base(name)))
}

const LEADS_ON: &str = ", and lead to the next base";
const NOT_JOINED: &str = "; the next base is not known to follow";

/// Whether the entries of a chain lead to the base of the next one. It may be of another history.
fn joins(
    archive: &Archive,
    (chain, state): (&Chain, &mut State),
    (next, base): (&Chain, &State),
    with: With<'_>,
) -> Result<bool, Fault> {
    let is_there = roll_forward(archive, chain, state, Until::Index(next.base.index), with)?;
    // An entry without content may be of any history.
    if !is_there || state.last() != Some(next.base) || next.base.crc == 0 {
        return Ok(false);
    }
    let (expected, found) = (base.machine().view(), state.machine().view());
    if (expected.zxid(), expected.digest()) == (found.zxid(), found.digest()) {
        return Ok(true);
    }
    Err(damaged(format!("the entries of {} do not lead to the base of {}", chain.name, next.name)))
}

/// Reads the rest of a chain, and tells what it has. Gives the time of its end.
fn finish(
    archive: &Archive,
    (chain, mut state): (&Chain, State),
    with: With<'_>,
    next: &str,
    out: &mut Output,
) -> Result<i64, Fault> {
    roll_forward(archive, chain, &mut state, Until::End, with)?;
    chain.others.iter().try_for_each(|file| read(archive, chain, file, with.0).map(drop))?;
    let (name, entries, zxid) = (&chain.name, state.entries, state.zxid());
    out.line(&format!("chain         {name}, {entries} entries to zxid 0x{zxid:x}{}{next}", at(&state)))?;
    check_gap(chain)?;
    Ok(state.time_ms.map_or(chain.time_ms, |ms| ms.max(chain.time_ms)))
}
