//! Tells the compiler how old the source is: the build date that `srvr` shows in ZooKeeper's form.
//!
//! The same source gives the same date, so that builds can be compared byte by byte: `SOURCE_DATE_EPOCH` if it is set, else the
//! date of the commit, else, in a folder without git, the date of the package in `Cargo.toml`. No network, no clock.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

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
    let (days, minutes) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400) / 60);
    // Years begin in March here, so that the day of a leap year is the last: eras of 400 years have 146,097 days.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_of_year = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_of_year + 2) / 5 + 1;
    let month = if month_of_year < 10 { month_of_year + 3 } else { month_of_year - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60, minutes % 60)
}
