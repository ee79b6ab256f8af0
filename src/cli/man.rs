//! `corral man`: manual pages of corral and its sub-commands, from the same definitions as `--help`.
//!
//! The main thread only.

use std::path::PathBuf;
use std::{fs, io};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::cli::output;
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral man`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory for one page of corral and of each sub-command. Without it corral(1) is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the page of a command, or writes it and those of all sub-commands.
///
/// # Errors
/// If a page cannot be written.
pub(crate) fn run(arguments: &Arguments, command: Command) -> Result<(), Fault> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(dir) = &arguments.out else { return output::print(&page(&command)) };
    let failed = |error: io::Error| {
        let sentence = format!("{}: man pages cannot be written there: {error}; give --out a directory", dir.display());
        Fault::new(ExitCode::StorageUnavailable, sentence)
    };
    fs::create_dir_all(dir).map_err(failed)?;
    let (mut commands, mut count) = (vec![&command], 0);
    while let Some(command) = commands.pop() {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name());
        fs::write(dir.join(format!("{name}.1")), page(command)).map_err(failed)?;
        count += 1;
        commands.extend(command.get_subcommands().filter(|command| !command.is_hide_set()));
    }
    output::print(&format!("{}: {count} man pages\n", dir.display()))
}

/// The page of one command.
fn page(command: &Command) -> String {
    let date = env!("CORRAL_BUILT").split(' ').next().unwrap_or_default();
    let man = Man::new(command.clone()).date(date).source(concat!("corral ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)
        .and_then(|()| man.render_name_section(&mut page))
        .and_then(|()| synopsis(command).to_writer(&mut page))
        .and_then(|()| man.render_description_section(&mut page))
        .and_then(|()| man.render_options_section(&mut page))
        .and_then(|()| if command.has_subcommands() { man.render_subcommands_section(&mut page) } else { Ok(()) })
        .and_then(|()| environment(command).to_writer(&mut page))
        .and_then(|()| notes(command).to_writer(&mut page))
        .expect("a Vec takes every write");
    String::from_utf8_lossy(&page).into_owned()
}

/// The line of usage of `--help`, which has the `--` before a command.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let line = usage.trim_start_matches("Usage: ").to_owned();
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]).text([roman(line)]);
    synopsis
}

/// The variables that options are taken from.
fn environment(command: &Command) -> Roff {
    let mut environment = Roff::new();
    let options = command.get_arguments().filter_map(|option| Some((option.get_env()?, option.get_long()?)));
    for (number, (variable, option)) in options.enumerate() {
        if number == 0 {
            environment.control("SH", ["ENVIRONMENT"]);
        }
        let sentence = format!("Used if --{option} is not given");
        environment.control("TP", []).text([bold(variable.to_string_lossy())]).text([roman(sentence)]);
    }
    environment
}

/// The text that ends `--help`, line by line, and the exit codes if that has none of its own.
fn notes(command: &Command) -> Roff {
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut notes = Roff::new();
    notes.control("SH", ["NOTES"]).control("nf", []);
    for line in text.lines() {
        match line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            Some(heading) => notes.control("fi", []).control("SS", [heading]).control("nf", []),
            None => notes.text([roman(line)]),
        };
    }
    notes.control("fi", []);
    if !text.contains("Exit codes") {
        notes.control("SH", ["EXIT STATUS"]);
        for code in ExitCode::ALL {
            notes.control("TP", []).text([roman(code.number().to_string())]).text([roman(code.doc())]);
        }
    }
    notes
}
