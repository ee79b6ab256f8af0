//! Certificates that are renewed while the server runs: when the files of TLS are read again.
//!
//! A plain thread, which may block: at SIGHUP, and if `ensemble.tls_watch` says so when the files have changed. What is read
//! counts for connections that begin from then on; those that stand go on. It knows nothing of what is in the files.

use std::time::Duration;

use crate::net::peers::tls::{Stamp, Tls};

/// How often the files are looked at. They are read when nothing has changed since the look before, so that a certificate and
/// its key, which are replaced one after the other, are read together.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Reads the files again whenever that is asked for, or, with `watch`, wanted; until nobody can ask any more.
pub(crate) fn run(tls: &Tls, watch: bool, asked: &flume::Receiver<()>) {
    let mut watched = Watched { tried: tls.stamp_in_use(), before: tls.stamp_in_use() };
    loop {
        let is_asked = if watch {
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
        if watched.look(tls.stamp(), is_asked) {
            reload(tls);
        }
    }
}

fn reload(tls: &Tls) {
    match tls.reload() {
        Ok(()) => tracing::info!(expires = tls.expires(), "certificates reloaded; new connections use them"),
        Err(reason) => tracing::error!("certificates not reloaded, those in use stay: {reason}"),
    }
}

/// What was seen of the files.
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
    use crate::net::peers::tests::Authority;

    #[test]
    fn files_are_read_when_they_have_come_to_rest() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let authority = Authority::new("good");
        let [cert, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| dir.path().join(name));
        let write = |names: &[&str]| {
            let (cert_text, key_text, ca_text) = authority.pem(names);
            for (path, text) in [(&cert, cert_text), (&key, key_text), (&ca, ca_text)] {
                // Moved into place, so that it is another file even in the same tick of the clock.
                std::fs::write(path.with_extension("new"), text).expect("the directory is writable");
                std::fs::rename(path.with_extension("new"), path).expect("the directory is writable");
            }
        };
        write(&["127.0.0.1"]);
        let tls = Tls::load(&cert, &key, &ca).expect("the files are good");
        let mut watched = Watched { tried: tls.stamp_in_use(), before: tls.stamp_in_use() };
        assert!(!watched.look(tls.stamp(), false));
        write(&["127.0.0.1", "more.example"]);
        assert!(!watched.look(tls.stamp(), false), "more may be written");
        assert!(watched.look(tls.stamp(), false));
        assert!(!watched.look(tls.stamp(), false), "once");
        assert!(watched.look(tls.stamp(), true), "or whenever it is asked for");
        let (first, expires) = (tls.stamp_in_use(), tls.expires());
        tls.reload().expect("the files are good");
        assert!(tls.stamp_in_use() != first && tls.stamp_in_use() == tls.stamp());
        std::fs::remove_file(&ca).expect("it is there");
        let reason = tls.reload().expect_err("a file is missing");
        assert!(reason.contains("ca.pem cannot be read"), "{reason}");
        assert!(tls.expires() == expires && tls.stamp_in_use() != tls.stamp());
    }
}
