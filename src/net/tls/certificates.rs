//! Certificates that are renewed while the server runs: when the files of TLS are read again.
//!
//! A plain thread, which may block: at SIGHUP, and if the configuration says so when the files have changed.
//! Certificates that are read count for connections that begin from then on; present ones go on. It does not know the
//! content of the files.

use std::time::Duration;

use super::Stamp;

/// How often the files are looked at. They are read when nothing has changed since the look before. So a certificate
/// and its key, which are replaced one after the other, are read together.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// A key, certificates and authorities that were read from files, and can be read again.
pub(crate) trait Certificates: Send {
    /// The other side, `clients` or `servers`, for the log.
    fn whose(&self) -> &'static str;

    /// When the first certificate of the own chain expires, Unix seconds; `None` if that cannot be read.
    fn expires(&self) -> Option<i64>;

    /// Sentences about certificates and lists in use that have expired.
    fn expired(&self) -> Vec<String>;

    /// Of the files as they are now. May block.
    fn stamp(&self) -> Stamp;

    /// Of the files as they were when they were read.
    fn stamp_in_use(&self) -> Stamp;

    /// Reads the files again, for the connections that begin from now on. May block.
    ///
    /// # Errors
    /// The fault of the files and the remedy. The certificates in use stay.
    fn reload(&self) -> Result<(), String>;
}

/// Certificates, and whether their files are watched.
pub(crate) type Kept = (Box<dyn Certificates>, bool);

/// Reads the files again at each request, and watched files after a change. `users` reads the users of SASL, at each request. Ends when
/// the sender of requests is gone.
pub(crate) fn run(kept: &[Kept], users: Option<&dyn Fn() -> Result<(), String>>, asked: &flume::Receiver<()>) {
    let begin =
        |(certificates, _): &Kept| Watched { tried: certificates.stamp_in_use(), before: certificates.stamp_in_use() };
    let mut watched: Vec<Watched> = kept.iter().map(begin).collect();
    kept.iter().for_each(|(certificates, _)| warn(&**certificates));
    let watches = kept.iter().any(|(_, watch)| *watch);
    loop {
        let is_asked = if watches {
            match asked.recv_timeout(LOOK_EVERY) {
                Ok(()) => true,
                Err(flume::RecvTimeoutError::Timeout) => false,
                Err(flume::RecvTimeoutError::Disconnected) => return,
            }
        } else {
            match asked.recv() {
                Ok(()) => true,
                Err(flume::RecvError::Disconnected) => return,
            }
        };
        match users.filter(|_| is_asked).map(|reload| reload()) {
            Some(Ok(())) => tracing::info!("SASL users reloaded; new authentications use them"),
            Some(Err(reason)) => tracing::error!("SASL users not reloaded, those in use stay: {reason}"),
            None => {}
        }
        for ((certificates, watch), watched) in kept.iter().zip(&mut watched) {
            if (is_asked || *watch) && watched.look(certificates.stamp(), is_asked) {
                reload(&**certificates);
            }
        }
    }
}

fn reload(certificates: &dyn Certificates) {
    let with = certificates.whose();
    match certificates.reload() {
        Ok(()) => {
            tracing::info!(with, expires = certificates.expires(), "certificates reloaded; new connections use them");
            warn(certificates);
        }
        Err(reason) => tracing::error!(with, "certificates not reloaded, those in use stay: {reason}"),
    }
}

fn warn(certificates: &dyn Certificates) {
    let with = certificates.whose();
    certificates.expired().iter().for_each(|sentence| tracing::warn!(with, "{sentence}"));
}

/// The files as they were seen last.
struct Watched {
    /// When they were last read.
    tried: Stamp,
    /// At the last look.
    before: Stamp,
}

impl Watched {
    /// Whether they are to be read now.
    fn look(&mut self, now: Stamp, is_asked: bool) -> bool {
        let due = is_asked || now != self.tried && now == self.before;
        if due {
            self.tried = now.clone();
        }
        self.before = now;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_when_they_have_come_to_rest() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let paths = ["cert.pem", "key.pem"].map(|name| dir.path().join(name));
        let stamp = || Stamp::of(paths.iter().map(|path| path.as_path()));
        let write = |at: usize| {
            // Moved into place, so that it is another file even in the same tick of the clock.
            std::fs::write(paths[at].with_extension("new"), "text").expect("the directory is writable");
            std::fs::rename(paths[at].with_extension("new"), &paths[at]).expect("the directory is writable");
        };
        write(0);
        let mut watched = Watched { tried: stamp(), before: stamp() };
        assert!(!watched.look(stamp(), false));
        write(1);
        assert!(!watched.look(stamp(), false), "more may be written");
        write(0);
        assert!(!watched.look(stamp(), false), "more was written");
        assert!(watched.look(stamp(), false));
        assert!(!watched.look(stamp(), false), "once");
        assert!(watched.look(stamp(), true), "or whenever it is asked for");
        std::fs::remove_file(&paths[1]).expect("it is there");
        assert!(!watched.look(stamp(), false) && watched.look(stamp(), false));
    }
}
