//! Whether a file can be written, asked before a run instead of after it.
//!
//! Used by the coordinating thread for the files of `--csv` and `--svg`. Leaves no trace: what is there stays as it is,
//! what was made for the trial is removed. Knows no contents.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

/// Tries to open a file for writing.
///
/// # Errors
/// If that is not possible: no such folder, no right to, a folder of that name.
pub(crate) fn try_out(path: &Path) -> io::Result<()> {
    let there = fs::metadata(path);
    // A pipe would be closed towards its reader, and a device says nothing by being opened.
    if there.as_ref().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        return Ok(());
    }
    OpenOptions::new().append(true).create(true).open(path)?;
    if there.is_err() { fs::remove_file(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_leaves_no_trace() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("old"), directory.path().join("new"));
        fs::write(&old, "as it was").unwrap();
        try_out(&old).unwrap();
        try_out(&new).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "as it was");
        assert!(!new.exists());
        try_out(Path::new("/dev/null")).unwrap();
        assert!(try_out(directory.path()).is_err(), "a folder is no file");
        assert!(try_out(&old.join("below a file")).is_err());
    }
}
