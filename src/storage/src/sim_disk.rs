//! A disk in memory with the worst faults that a real one may have: for the simulator and the crash tests.
//!
//! Every file has a durable and a cached content. Only syncs move bytes from the one to the other. A crash keeps, loses
//! or tears each un-synced 512-byte sector independently, and keeps or loses un-synced names. Tests can make a sync
//! fail and later ones report success without effect, limit the space, and stop the process at any numbered step.
//! Contents outlive the log that wrote them. It uses no clock and no random bytes but the seed it is given.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use corral_types::SplitMix64;

use crate::disk::{AlignedBytes, Bytes, Disk, NewFile, PieceReader, Segment, TEMPORARY_SUFFIX};
use crate::field::{narrow, wide};
use crate::limits::{PAGE_BYTES, SECTOR_BYTES};

/// A directory in memory. Clones are handles on the same directory.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone, Default)]
struct State {
    files: BTreeMap<u64, SimFile>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Changes of names since the last sync of the directory, oldest first.
    pending: Vec<NameChange>,
    next_file: u64,
    /// Counts crashes; handles from before a crash fail.
    crashes: u64,
    steps: u64,
    syncs: u64,
    stop_at: Option<u64>,
    fail_sync_at: Option<u64>,
    space_bytes: Option<u64>,
    no_file: Option<i32>,
}

#[derive(Debug, Clone, Default)]
struct SimFile {
    durable: Vec<u8>,
    cached: Vec<u8>,
    /// A sync failed: later ones report success and make nothing durable, as ext4 was measured to do.
    sync_has_no_effect: bool,
}

#[derive(Debug, Clone)]
enum NameChange {
    Link(String, u64),
    /// From, to, and the file itself: whatever else of these names is lost, no other file gets the new one.
    Rename(String, String, u64),
    Remove(String),
}

impl SimDisk {
    /// An empty directory.
    #[must_use]
    pub fn new() -> SimDisk {
        SimDisk::default()
    }

    /// Simulates a power cut.
    ///
    /// Each un-synced sector is kept, lost or torn and each un-synced name kept or lost, all drawn from `seed`. Drop the log
    /// and every other user first: what a segment holds reaches the disk's cache when it is synced or dropped. Faults
    /// ordered before are cancelled.
    pub fn crash(&self, seed: u64) {
        let mut state = self.lock();
        let mut rng = SplitMix64::new(seed);
        for file in state.files.values_mut() {
            file.crash(&mut rng);
        }
        let mut names = std::mem::take(&mut state.durable_names);
        let pending = std::mem::take(&mut state.pending);
        // Half of the crashes keep a prefix, as a journal does; the others any subset that makes sense.
        let keep_first = if rng.below(2) == 0 { Some(rng.below(wide(pending.len()).saturating_add(1))) } else { None };
        for (number, change) in (0u64..).zip(&pending) {
            let keep = keep_first.map_or_else(|| rng.below(2) == 0, |count| number < count);
            if keep {
                change.apply(&mut names);
            }
        }
        state.names.clone_from(&names);
        state.durable_names = names;
        let State { files, names, .. } = &mut *state;
        files.retain(|id, _| names.values().any(|named| named == id));
        state.crashes = state.crashes.saturating_add(1);
        state.stop_at = None;
        state.fail_sync_at = None;
    }

    /// Makes every call fail from the `step`-th step on, as if the process had been killed there.
    ///
    /// Steps are counted from now; 0 is the next. A step is a boundary between two system calls, of which one call of
    /// [`Disk`] may make several.
    pub fn stop_at_step(&self, step: u64) {
        let mut state = self.lock();
        state.stop_at = Some(state.steps.saturating_add(step));
    }

    /// Whether the step has come at which the process is to end, so that all calls fail.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.lock().has_stopped()
    }

    /// Steps made so far; a crash does not reset the number.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.lock().steps
    }

    /// Makes the `number`-th sync of file content from now on fail; 0 is the next. Later syncs of that file report success
    /// and make nothing durable.
    pub fn fail_sync(&self, number: u64) {
        let mut state = self.lock();
        state.fail_sync_at = Some(state.syncs.saturating_add(number));
    }

    /// Limits the bytes all files together may take; `None` lifts the limit.
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.lock().space_bytes = bytes;
    }

    /// Makes every making or opening of a file for writing fail with this error number of the operating system; `None` lifts
    /// that.
    pub fn refuse_files(&self, errno: Option<i32>) {
        self.lock().no_file = errno;
    }

    /// An independent copy of the directory as it is now.
    #[must_use]
    pub fn fork(&self) -> SimDisk {
        SimDisk { state: Arc::new(Mutex::new(self.lock().clone())) }
    }

    /// The cached content of a file; `None` if there is none of that name.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        let id = state.names.get(name)?;
        state.files.get(id).map(|file| file.cached.clone())
    }

    /// Replaces a file by one with this durable content, or makes it: for tests that damage files.
    pub fn place(&self, name: &str, content: Vec<u8>) {
        let mut state = self.lock();
        let id = state.new_file();
        state.names.insert(name.to_owned(), id);
        state.durable_names.insert(name.to_owned(), id);
        state.files.insert(id, SimFile { durable: content.clone(), cached: content, sync_has_no_effect: false });
    }

    /// Removes a file durably: for tests that damage files.
    pub fn forget(&self, name: &str) {
        let mut state = self.lock();
        state.names.remove(name);
        state.durable_names.remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_stopped(&self) -> bool {
        self.stop_at.is_some_and(|at| self.steps >= at)
    }

    /// One boundary between system calls; fails if the process stops here.
    fn step(&mut self) -> io::Result<()> {
        if self.has_stopped() {
            return Err(io::Error::other("the simulated process has stopped"));
        }
        self.steps = self.steps.saturating_add(1);
        Ok(())
    }

    fn new_file(&mut self) -> u64 {
        let id = self.next_file;
        self.next_file = id.saturating_add(1);
        id
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    fn find(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn file(&mut self, id: u64) -> io::Result<&mut SimFile> {
        self.files.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn check_space(&self, more: u64) -> io::Result<()> {
        let used: u64 = self.files.values().map(|file| wide(file.cached.len())).sum();
        match self.space_bytes {
            Some(limit) if used.saturating_add(more) > limit => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn check_no_file(&self) -> io::Result<()> {
        self.no_file.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    /// Counts a sync of `file` and returns whether it reaches the disk; an error if it is the one ordered to fail.
    fn sync_reaches(&mut self, id: u64) -> io::Result<bool> {
        let number = self.syncs;
        self.syncs = number.saturating_add(1);
        let fails = self.fail_sync_at == Some(number);
        let file = self.file(id)?;
        if fails {
            file.sync_has_no_effect = true;
            return Err(io::Error::other("simulated I/O error"));
        }
        Ok(!file.sync_has_no_effect)
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.step()?;
        self.durable_names = self.names.clone();
        self.pending.clear();
        let State { files, names, .. } = self;
        // A file without a name exists while a segment is open; a log never syncs one, so it may go.
        files.retain(|id, _| names.values().any(|named| named == id));
        Ok(())
    }

    fn link_new(&mut self, name: &str) -> u64 {
        let id = self.new_file();
        self.files.insert(id, SimFile::default());
        self.change(NameChange::Link(name.to_owned(), id));
        id
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Link(name, id) => {
                names.insert(name.clone(), *id);
            }
            NameChange::Rename(from, to, id) => {
                if names.get(from) == Some(id) {
                    names.remove(from);
                    names.insert(to.clone(), *id);
                }
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl SimFile {
    fn crash(&mut self, rng: &mut SplitMix64) {
        let mut kept = std::mem::take(&mut self.durable);
        if kept.len() != self.cached.len() && rng.below(2) == 0 {
            kept.resize(self.cached.len(), 0);
        }
        for (old, new) in kept.chunks_mut(SECTOR_BYTES).zip(self.cached.chunks(SECTOR_BYTES)) {
            if old == new {
                continue;
            }
            let count = match rng.below(3) {
                0 => 0,
                1 => new.len(),
                _ => narrow(rng.below(wide(new.len()))),
            };
            for (old, new) in old.iter_mut().zip(new).take(count) {
                *old = *new;
            }
        }
        self.cached.clone_from(&kept);
        self.durable = kept;
        self.sync_has_no_effect = false;
    }

    /// Copies `bytes` (the whole content) in range `from..to` to cache and disk.
    fn persist(&mut self, bytes: &[u8], from: usize, to: usize) {
        for content in [&mut self.cached, &mut self.durable] {
            content.resize(bytes.len(), 0);
            if let (Some(target), Some(source)) = (content.get_mut(from..to), bytes.get(from..to)) {
                target.copy_from_slice(source);
            }
        }
    }
}

impl Disk for SimDisk {
    type Segment = SimSegment;
    type NewFile = SimNewFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.lock();
        state.step()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn create_segment(&self, name: &str, bytes: usize) -> io::Result<SimSegment> {
        let mut state = self.lock();
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let temporary = format!("{name}{TEMPORARY_SUFFIX}");
        state.check_no_file()?;
        state.check_space(wide(bytes))?;
        state.step()?;
        let id = state.link_new(&temporary);
        state.step()?;
        state.file(id)?.cached = vec![0; bytes];
        state.step()?;
        let zeros = vec![0; bytes];
        state.file(id)?.persist(&zeros, 0, bytes);
        state.step()?;
        state.change(NameChange::Rename(temporary, name.to_owned(), id));
        state.sync_names()?;
        let crashes = state.crashes;
        drop(state);
        Ok(SimSegment { disk: self.clone(), id, crashes, bytes: zeros })
    }

    fn open_segment(&self, name: &str) -> io::Result<SimSegment> {
        let mut state = self.lock();
        state.check_no_file()?;
        state.step()?;
        let id = state.find(name)?;
        let file = state.file(id)?;
        // Recovery stores again what it continues from, so that later syncs are real.
        file.sync_has_no_effect = false;
        let bytes = file.cached.clone();
        let crashes = state.crashes;
        drop(state);
        Ok(SimSegment { disk: self.clone(), id, crashes, bytes })
    }

    fn create_file(&self, name: &str) -> io::Result<SimNewFile> {
        let mut state = self.lock();
        state.check_no_file()?;
        state.step()?;
        let temporary = format!("{name}{TEMPORARY_SUFFIX}");
        let id = state.link_new(&temporary);
        let crashes = state.crashes;
        drop(state);
        Ok(SimNewFile { disk: self.clone(), id, crashes, temporary, target: name.to_owned(), committed: false })
    }

    fn map(&self, name: &str) -> io::Result<Arc<dyn Bytes>> {
        let mut state = self.lock();
        state.step()?;
        let id = state.find(name)?;
        Ok(Arc::new(AlignedBytes::copy_of(&state.file(id)?.cached)))
    }

    fn open_pieces(&self, name: &str) -> io::Result<Box<dyn PieceReader>> {
        let mut state = self.lock();
        state.step()?;
        let id = state.find(name)?;
        Ok(Box::new(SimPieces(state.file(id)?.cached.clone())))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.step()?;
        let id = state.find(from)?;
        state.change(NameChange::Rename(from.to_owned(), to.to_owned(), id));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.step()?;
        state.find(name)?;
        state.change(NameChange::Remove(name.to_owned()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.lock().sync_names()
    }

    fn boot(&self) -> u128 {
        u128::from(self.lock().crashes).saturating_add(1)
    }
}

/// A segment of a [`SimDisk`]: a copy of the file that flows back on sync and on drop.
#[derive(Debug)]
pub struct SimSegment {
    disk: SimDisk,
    id: u64,
    crashes: u64,
    bytes: Vec<u8>,
}

/// The content of a file when it was opened.
struct SimPieces(Vec<u8>);

impl PieceReader for SimPieces {
    fn length(&self) -> u64 {
        wide(self.0.len())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let rest = self.0.get(narrow(offset)..).unwrap_or_default();
        let count = rest.len().min(into.len());
        let (from, to) = (rest.get(..count).unwrap_or_default(), into.get_mut(..count).unwrap_or_default());
        to.copy_from_slice(from);
        Ok(count)
    }
}

impl Segment for SimSegment {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn sync(&mut self, from: usize, to: usize) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.step()?;
        if state.crashes != self.crashes {
            return Err(io::Error::other("the simulated machine has crashed since"));
        }
        if state.sync_reaches(self.id)? {
            // The kernel works in pages, so bytes around the range become durable too.
            let start = from.saturating_sub(from.checked_rem(PAGE_BYTES).unwrap_or(0));
            let end = crate::field::align_up(to, PAGE_BYTES).min(self.bytes.len());
            state.file(self.id)?.persist(&self.bytes, start, end);
        }
        Ok(())
    }
}

impl Drop for SimSegment {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if state.crashes == self.crashes
            && let Ok(file) = state.file(self.id)
        {
            file.cached = std::mem::take(&mut self.bytes);
        }
    }
}

/// A file of a [`SimDisk`] under its temporary name.
#[derive(Debug)]
pub struct SimNewFile {
    disk: SimDisk,
    id: u64,
    crashes: u64,
    temporary: String,
    target: String,
    committed: bool,
}

impl SimNewFile {
    fn sync_content(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.step()?;
        if state.crashes != self.crashes {
            return Err(io::Error::other("the simulated machine has crashed since"));
        }
        if state.sync_reaches(self.id)? {
            let file = state.file(self.id)?;
            file.durable.clone_from(&file.cached);
        }
        Ok(())
    }
}

impl NewFile for SimNewFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.step()?;
        let from = narrow(offset);
        let to = from.checked_add(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        let length = state.file(self.id)?.cached.len();
        state.check_space(wide(to.saturating_sub(length)))?;
        let file = state.file(self.id)?;
        file.cached.resize(length.max(to), 0);
        if let Some(target) = file.cached.get_mut(from..to) {
            target.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn push(&mut self, _offset: u64, _bytes: usize) -> io::Result<()> {
        self.disk.lock().step()
    }

    fn commit(mut self) -> io::Result<()> {
        self.sync_content()?;
        let mut state = self.disk.lock();
        state.step()?;
        let (from, to) = (self.temporary.clone(), self.target.clone());
        let id = self.id;
        state.change(NameChange::Rename(from, to, id));
        self.committed = true;
        state.sync_names()
    }
}

impl Drop for SimNewFile {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        // A stopped process removes nothing.
        if !self.committed
            && state.crashes == self.crashes
            && state.step().is_ok()
            && state.find(&self.temporary).is_ok()
        {
            state.change(NameChange::Remove(self.temporary.clone()));
        }
    }
}
