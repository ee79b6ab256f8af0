//! The watches of a session, and how they fire.

use std::collections::BTreeMap;

use corral_core::path;
use corral_wire::consts::{AddWatchMode, EventType, KeeperState, WatcherType};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Events that a receiver has not taken yet. More are lost.
const EVENTS_MAX: usize = 65_536;
/// Of one session.
pub(crate) const WATCHES_MAX: usize = 1 << 20;

/// The finding of a watch, or a change of the session's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `None` for a change of the session's state.
    pub kind: EventType,
    /// The state of the session.
    pub state: KeeperState,
    /// Empty for a change of the session's state.
    pub path: String,
    /// Of the change, or -1.
    pub zxid: i64,
}

/// Takes events. Clones are the same watcher, which is told of each event once.
#[derive(Clone, Debug)]
pub struct Watcher(Sender<Event>);

/// The receiving end of a [`Watcher`].
#[derive(Debug)]
pub struct Events(Receiver<Event>);

/// A watcher and its events.
pub fn watcher() -> (Watcher, Events) {
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    (Watcher(sender), Events(receiver))
}

impl Events {
    /// The next event. `None` if none can come any more, or if more than 65,536 were not taken in time.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }

    /// Whether so many wait that later ones are lost.
    pub fn is_full(&self) -> bool {
        self.0.len() >= EVENTS_MAX
    }

    /// An event that is there already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.0.try_recv().ok()
    }
}

impl Watcher {
    /// False if the events are not taken.
    pub(crate) fn tell(&self, event: Event) -> bool {
        match self.0.try_send(event) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => false,
        }
    }

    fn is(&self, other: &Watcher) -> bool {
        self.0.same_channel(&other.0)
    }
}

/// Which events of a znode a watch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Data,
    /// Of a znode that did not exist.
    Exists,
    Children,
    Persistent,
    Recursive,
}

impl From<AddWatchMode> for Kind {
    fn from(mode: AddWatchMode) -> Kind {
        match mode {
            AddWatchMode::Persistent => Kind::Persistent,
            AddWatchMode::PersistentRecursive => Kind::Recursive,
        }
    }
}

/// By kind and whole path.
#[derive(Default)]
pub(crate) struct Watches {
    table: BTreeMap<(Kind, String), Vec<Watcher>>,
}

impl Watches {
    /// False if the table is full.
    pub(crate) fn add(&mut self, kind: Kind, path: String, watcher: Watcher) -> bool {
        if self.table.len() >= WATCHES_MAX && !self.table.contains_key(&(kind, path.clone())) {
            return false;
        }
        let at = self.table.entry((kind, path)).or_default();
        if !at.iter().any(|known| known.is(&watcher)) {
            at.push(watcher);
        }
        true
    }

    /// The watchers of an event. Those of one-shot watches are removed.
    pub(crate) fn fire(&mut self, event: EventType, path: &str) -> Vec<Watcher> {
        let once: &[Kind] = match event {
            EventType::NodeCreated | EventType::NodeDataChanged => &[Kind::Data, Kind::Exists],
            EventType::NodeChildrenChanged => &[Kind::Children],
            EventType::NodeDeleted => &[Kind::Data, Kind::Exists, Kind::Children],
            _ => &[],
        };
        let mut told: Vec<Watcher> = Vec::new();
        let mut add = |watchers: &[Watcher]| {
            for watcher in watchers {
                if !told.iter().any(|known| known.is(watcher)) {
                    told.push(watcher.clone());
                }
            }
        };
        for kind in once {
            add(&self.table.remove(&(*kind, path.to_owned())).unwrap_or_default());
        }
        add(self.table.get(&(Kind::Persistent, path.to_owned())).map_or(&[], Vec::as_slice));
        if event != EventType::NodeChildrenChanged {
            let mut above = path;
            loop {
                add(self.table.get(&(Kind::Recursive, above.to_owned())).map_or(&[], Vec::as_slice));
                if above == path::ROOT || !above.starts_with('/') {
                    break;
                }
                above = path::parent(above);
            }
        }
        told
    }

    /// Removes the watches of a path, and gives for each kind that there was the event that says so.
    pub(crate) fn remove(&mut self, path: &str, which: WatcherType) -> Vec<(EventType, Vec<Watcher>)> {
        let kinds: &[Kind] = match which {
            WatcherType::Data => &[Kind::Data, Kind::Exists],
            WatcherType::Children => &[Kind::Children],
            WatcherType::Persistent => &[Kind::Persistent],
            WatcherType::PersistentRecursive => &[Kind::Recursive],
            WatcherType::Any => &[Kind::Children, Kind::Data, Kind::Exists, Kind::Persistent, Kind::Recursive],
        };
        let mut removed = Vec::new();
        for kind in kinds {
            let event = match kind {
                Kind::Data | Kind::Exists => EventType::DataWatchRemoved,
                Kind::Children => EventType::ChildWatchRemoved,
                Kind::Persistent | Kind::Recursive => EventType::PersistentWatchRemoved,
            };
            removed.extend(self.table.remove(&(*kind, path.to_owned())).map(|watchers| (event, watchers)));
        }
        removed
    }

    /// All watches of one kind, for a new connection.
    pub(crate) fn paths(&self, kind: Kind) -> impl Iterator<Item = &str> {
        self.table.keys().filter(move |(own, _)| *own == kind).map(|(_, path)| path.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_is_told_of_an_event_once() {
        let (mut watches, (one, _events), (other, _others)) = (Watches::default(), watcher(), watcher());
        for kind in [Kind::Data, Kind::Children] {
            assert!(watches.add(kind, "/a".into(), one.clone()));
        }
        assert!(watches.add(Kind::Recursive, "/".into(), one));
        assert!(watches.add(Kind::Persistent, "/a".into(), other));
        assert_eq!(watches.fire(EventType::NodeChildrenChanged, "/a").len(), 2, "none for the recursive one");
        assert_eq!(watches.fire(EventType::NodeDeleted, "/a").len(), 2);
        assert_eq!(watches.paths(Kind::Data).count(), 0, "fired");
        assert_eq!(watches.fire(EventType::NodeCreated, "/a/b").len(), 1, "the recursive one");
        assert_eq!(watches.fire(EventType::NodeCreated, "/ab").len(), 1);
        let removed = watches.remove("/a", WatcherType::Any);
        assert_eq!(removed.iter().map(|(event, _)| *event).collect::<Vec<_>>(), [EventType::PersistentWatchRemoved]);
        assert!(watches.remove("/a", WatcherType::Any).is_empty());
    }
}
