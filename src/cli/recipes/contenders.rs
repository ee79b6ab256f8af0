//! Contenders for a lock or for leadership: ephemeral sequential znodes below one path, as those of Curator and kazoo.
//!
//! The main thread, in a runtime of tokio. A contender has a znode in each layout, made in one transaction, because neither
//! library knows the other's names. It respects the contenders of all layouts, and watches its predecessor only.

use std::io::{self, IsTerminal as _};
use std::mem;

use corral_client::{CreateMode, Error, ErrorCode, Write};
use corral_core::path;

use crate::cli::client::failed;
use crate::cli::output::{note, plain};
use crate::cli::recipes::child::HeldZnode;
use crate::cli::recipes::session::{Session, creation, unique};
use crate::exit::{ExitCode, Fault};

/// Names end with one of these and a number: those of Curator's InterProcessMutex and LeaderSelector, LeaderLatch, the two
/// sides of InterProcessReadWriteLock, and kazoo's.
const MUTEX: &str = "lock-";
const LATCH: &str = "latch-";
const WRITER: &str = "__WRIT__";
const READER: &str = "__READ__";
const KAZOO: &str = "__lock__";
const KAZOO_READER: &str = "__rlock__";

const EXCLUSIVE: [&str; 4] = [MUTEX, LATCH, WRITER, KAZOO];
const ALL: [&str; 6] = [MUTEX, LATCH, WRITER, KAZOO, READER, KAZOO_READER];
/// Of a holder's name, as it is shown.
const ID_CHARS_MAX: usize = 80;
/// Digits of a sequence number at least.
const DIGITS_MIN: usize = 10;

/// The aim of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A lock, also the writer's of a read-write lock.
    Exclusive,
    /// A lock that readers share.
    Shared,
    /// Leadership.
    Candidate,
}

impl Role {
    /// The layouts that the contender has a znode in.
    fn layouts(self) -> &'static [&'static str] {
        match self {
            Role::Exclusive => &[MUTEX, WRITER, KAZOO],
            Role::Shared => &[READER, KAZOO_READER],
            Role::Candidate => &[LATCH, MUTEX, KAZOO],
        }
    }

    /// Earlier contenders of these layouts are waited for.
    fn respects(self) -> &'static [&'static str] {
        if self == Role::Shared { &EXCLUSIVE } else { &ALL }
    }
}

/// The number of a contender's znode, if it is of one of these layouts.
fn number(name: &str, layouts: &[&str]) -> Option<i32> {
    layouts.iter().find_map(|layout| {
        let (_, digits) = name.rsplit_once(layout)?;
        if digits.len() < DIGITS_MIN { None } else { digits.parse().ok() }
    })
}

/// The name of the first contender of all.
pub(super) fn first(names: &[String]) -> Option<&str> {
    let contenders = names.iter().filter_map(|name| Some((number(name, &ALL)?, name)));
    contenders.min().map(|(_, name)| name.as_str())
}

/// A contender of this session.
pub(super) struct Contender<'a> {
    session: &'a Session,
    path: &'a str,
    role: Role,
    /// In the names of its znodes, in Curator's form and in kazoo's.
    marks: [String; 2],
}

impl<'a> Contender<'a> {
    /// Enters behind all that are there.
    ///
    /// # Errors
    /// Of the server, or if the session has ended.
    pub(super) async fn enter(
        session: &'a Session,
        path: &'a str,
        role: Role,
        id: &str,
    ) -> Result<Contender<'a>, Fault> {
        let hex = format!("{:032x}", unique()?);
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        let contender = Contender { session, path, role, marks: [parts.join("-"), hex] };
        let [curator, kazoo] = &contender.marks;
        let name = |layout: &&str| match *layout {
            KAZOO | KAZOO_READER => path::child(path, &format!("{kazoo}{layout}")),
            layout => path::child(path, &format!("_c_{curator}-{layout}")),
        };
        let names: Vec<String> = role.layouts().iter().map(name).collect();
        let creation = creation(Some(id.as_bytes()), CreateMode::EphemeralSequential);
        let writes: Vec<Write<'_>> = names.iter().map(|path| Write::Create { path, creation }).collect();
        let is_done = async || Ok(!contender.own_names().await?.is_empty());
        loop {
            match session.once(&writes, is_done).await {
                Ok(()) => break,
                // A container goes when its last child is gone.
                Err(Error { code: ErrorCode::NoNode, .. }) => session.make(path).await?,
                Err(error) => return Err(failed(path, &error)),
            }
        }
        Ok(contender)
    }

    /// Waits until no contender is in front.
    ///
    /// # Errors
    /// Of the server, if an own znode is gone, the session has ended, or the time of `--timeout` passed.
    pub(super) async fn turn(&self) -> Result<HeldZnode, Fault> {
        let path = self.path;
        let gone = || Fault::new(ExitCode::SessionLost, format!("{path}: an own znode was deleted"));
        let mut is_told = false;
        let mut own: Vec<String> = loop {
            let names = self.session.children(path).await.map_err(|error| failed(path, &error))?;
            let contenders = names.iter().filter_map(|name| Some((number(name, &ALL)?, name)));
            let mut own: Vec<(i32, &String)> = contenders.filter(|(_, name)| self.is_own(name)).collect();
            own.sort_unstable();
            let number_of_own = match own.first() {
                Some((number, _)) if own.len() == self.role.layouts().len() => *number,
                _ => return Err(gone()),
            };
            let in_front = names.iter().filter(|name| !self.is_own(name));
            let in_front = in_front.filter_map(|name| Some((number(name, self.role.respects())?, name)));
            let in_front = in_front.filter(|(number, _)| *number < number_of_own);
            let Some((_, before)) = in_front.clone().max() else {
                break own.iter().map(|(_, name)| path::child(path, name)).collect();
            };
            if !mem::replace(&mut is_told, true) && io::stderr().is_terminal() {
                note(&format!("{path}: another contender is in front; waiting"));
            }
            match self.session.change_of(&path::child(path, before)).await {
                Err(late) if late.code == ExitCode::TimedOut => {
                    let holder = in_front.min().map_or(before, |(_, name)| name);
                    return Err(self.late(&path::child(path, holder)).await);
                }
                done => done?,
            }
        };
        HeldZnode::of_twins(self.session, own.remove(0), own).await
    }

    /// The fault that names the holder.
    async fn late(&self, holder: &str) -> Fault {
        let id = self.session.retry(|client| client.get_data(holder, None)).await;
        let id = id.ok().and_then(|(id, _)| id).unwrap_or_default();
        let id: String = plain(&String::from_utf8_lossy(&id)).chars().take(ID_CHARS_MAX).collect();
        let sentence = format!("{}: held by {id:?}, znode {holder}; the time given with --timeout passed", self.path);
        Fault::new(ExitCode::TimedOut, sentence)
    }

    /// Removes its znodes, so that the next one gets its turn.
    ///
    /// # Errors
    /// Of the server, or if the session has ended.
    pub(super) async fn leave(&self) -> Result<(), Error> {
        let own: Vec<String> = self.own_names().await?.iter().map(|name| path::child(self.path, name)).collect();
        let writes: Vec<Write<'_>> = own.iter().map(|path| Write::Delete { path, version: None }).collect();
        self.session.once(&writes, async || Ok(self.own_names().await?.is_empty())).await
    }

    fn is_own(&self, name: &str) -> bool {
        self.marks.iter().any(|mark| name.contains(mark))
    }

    async fn own_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.session.children(self.path).await?.into_iter().filter(|name| self.is_own(name)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_curator_and_kazoo_have_numbers() {
        let uuid = "f2a1b7c8-0000-4000-8000-00805f9b34fb";
        assert_eq!(number(&format!("_c_{uuid}-lock-0000000007"), &ALL), Some(7));
        assert_eq!(number(&format!("_c_{uuid}-__READ__0000000012"), &ALL), Some(12));
        assert_eq!(number(&format!("_c_{uuid}-__READ__0000000012"), &EXCLUSIVE), None, "readers share");
        assert_eq!(number("0f9c__lock__0000000003", &ALL), Some(3));
        assert_eq!(number("0f9c__rlock__0000000003", &EXCLUSIVE), None);
        assert_eq!(number("lock-", &ALL), None);
        assert_eq!(number("lock-7", &ALL), None);
        assert_eq!(number("_c_x-latch--2147483648", &ALL), Some(i32::MIN), "ZooKeeper's counter overflows so");
        assert_eq!(number("ready", &ALL), None);
    }
}
