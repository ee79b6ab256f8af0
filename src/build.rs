//! Tells the compiler how old the source is: the build date that `srvr` shows in ZooKeeper's form.
//!
//! The same source gives the same date, so that builds can be compared byte by byte. It is `SOURCE_DATE_EPOCH` if that is
//! set, or else the date of the commit. In a folder without git it is the date of the package in `Cargo.toml`. No network,
//! no clock.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use time::UtcDateTime;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    println!("cargo::rerun-if-changed=Cargo.toml");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let seconds = env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.trim().parse().ok());
    let built = match seconds.or_else(committed) {
        Some(seconds) => text(seconds),
        None => packaged(),
    };
    println!("cargo::rustc-env=CORRAL_BUILT={built}");
}

/// Seconds since 1970 at which the last commit was made, if this folder is the top of a repository.
fn committed() -> Option<i64> {
    if !Path::new(".git").exists() {
        return None;
    }
    // It grows with every commit and every change of branch.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["log", "-1", "--format=%ct"])?.parse().ok()
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The date in the package's metadata.
fn packaged() -> String {
    let manifest = fs::read_to_string("Cargo.toml").expect("cargo runs this beside its manifest");
    let line = manifest.lines().find_map(|line| line.strip_prefix("date = "));
    format!("{} 00:00 UTC", line.expect("the package's metadata has its date").trim_matches('"'))
}

/// As in `2026-11-21 07:05 UTC`.
fn text(seconds: i64) -> String {
    let at = UtcDateTime::from_unix_timestamp(seconds).expect("the build date is of the years 1 to 9999");
    format!("{} {:02}:{:02} UTC", at.date(), at.hour(), at.minute())
}
