//! `corral top`: the clients that load a server most.
//!
//! The main thread, with a runtime of tokio for the one connection.

use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;

use crate::cli::http::Server;
use crate::cli::output;
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral top`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Server,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=20))]
    seconds: u64,
    /// Print the server's JSON instead
    #[arg(long)]
    json: bool,
}

/// Columns of a table, with the field of each.
const COLUMNS: [(&str, &str); 5] = [
    ("requests/s", "requests_per_second"),
    ("bytes/s", "bytes_per_second"),
    ("waiting", "outstanding_requests"),
    ("watches", "watches"),
    ("connections", "connections"),
];

/// Prints two tables.
///
/// # Errors
/// If the server cannot be asked.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let failed = |sentence: String| Fault::new(ExitCode::Internal, sentence);
    let path = format!("/top?seconds={}", arguments.seconds);
    let (target, answers) = arguments.server.ask(&[&path], arguments.seconds)?;
    let answers = answers.map_err(|reason| failed(format!("{target}: {reason}")))?;
    let [(status, text)] = &answers[..] else { return Err(failed(format!("{target}: no answer"))) };
    let wrong = || {
        failed(format!(
            "{target}: the answer has status {status} and is no answer of `top`; is it the admin address of corral?"
        ))
    };
    let answer: Value = serde_json::from_str(text).map_err(|_| wrong())?;
    if let Some(error) = answer["error"].as_str() {
        return Err(failed(format!("{target}: {}", output::plain(error))));
    }
    if arguments.json {
        return output::print(&format!("{text}\n"));
    }
    let lists = [("address", &answer["addresses"]), ("session", &answer["sessions"])];
    let mut page = String::new();
    for (head, rows) in lists {
        let rows = rows.as_array().ok_or_else(wrong)?;
        let _ = write!(page, "{head:<40}");
        let _ = COLUMNS.iter().try_for_each(|(title, _)| write!(page, " {title:>13}"));
        page.push('\n');
        for row in rows {
            let text = |field: &str| output::plain(row[field].as_str().unwrap_or_default());
            let session = text("session_id");
            let name = if session.is_empty() { text("address") } else { format!("{session} {}", text("address")) };
            let _ = write!(page, "{name:<40}");
            let _ =
                COLUMNS.iter().try_for_each(|(_, field)| write!(page, " {:>13}", row[*field].as_u64().unwrap_or(0)));
            page.push('\n');
        }
        page.push('\n');
    }
    output::print(page.trim_end_matches('\n'))?;
    output::print("\n")
}
