//! A glommio echo as a process, for tests that put load on one.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

/// A running echo; it ends with the test.
pub(crate) struct Echo {
    pub(crate) child: Child,
    pub(crate) addr: String,
}

impl Echo {
    /// Answers with values of `value_bytes`, or as large as those it was last sent.
    pub(crate) fn start(value_bytes: Option<&str>) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_glommio-echo"))
            .args(["--addr", "127.0.0.1:0"])
            .args(value_bytes.map(|bytes| ["--value-bytes", bytes]).into_iter().flatten())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the echo can be started");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let addr = lines.find_map(|line| Some(line.ok()?.split_once("listening on ")?.1.to_owned()));
        let addr = addr.expect("the echo says where it listens");
        thread::spawn(move || lines.count());
        Self { child, addr }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
