//! `corral check-config`: what `serve` would run with, without running it. The main thread only; changes nothing. The files of
//! the secret and of TLS are read as `serve` reads them.

use std::fmt::Write as _;

use clap::Args;

use crate::cli::output;
use crate::cli::security;
use crate::cli::serve::ConfigArguments;
use crate::config::cores::{CorePlan, cpu_list};
use crate::config::{self, Config, Loaded, users};
use crate::control::admin;
use crate::exit::{ExitCode, Fault};
use crate::net::peers::setup;
use crate::net::tls::clients::ClientTls;
use crate::preflight;

/// Arguments of `corral check-config`; the configuration flags are those of `serve`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Print the reference of all keys in Markdown instead
    #[arg(long)]
    reference: bool,
    /// Print a configuration file with every key at its default instead
    #[arg(long, conflicts_with = "reference")]
    template: bool,
    /// Print the risks of the configuration instead, a line each; the exit code is 3 if there is one
    #[arg(long, conflicts_with_all = ["reference", "template"])]
    security: bool,
}

/// Prints the effective configuration, the reference or the template.
///
/// # Errors
/// A `Config` fault when `serve` would refuse the configuration.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    if arguments.reference {
        return output::print(&config::reference());
    }
    if arguments.template {
        return output::print(&config::template());
    }
    let loaded = arguments.config.load()?;
    if arguments.security {
        return judge(&loaded);
    }
    files(&loaded.config)?;
    let cpus = preflight::usable_cpus()?;
    let plan = loaded.core_plan(&cpus)?;
    let mut text = config::effective(&loaded);
    describe_plan(&mut text, &loaded.config, &plan, &cpus);
    for note in &loaded.notes {
        writeln!(text, "# note: {note}").expect("a String takes every write");
    }
    for warning in loaded.warnings.iter().chain(&plan.warnings) {
        writeln!(text, "# warning: {warning}").expect("a String takes every write");
    }
    output::print(&text)
}

/// Reads the files that the configuration names, as `serve` reads them.
///
/// # Errors
/// A `Config` fault for the first unusable file.
pub(super) fn files(config: &Config) -> Result<(), Fault> {
    setup::check_files(config)?;
    ClientTls::configured(config)?;
    ClientTls::for_admin(config)?;
    admin::Settings::configured(config)?;
    users::configured(&config.security).map(drop)
}

/// Prints the risks of a configuration.
fn judge(loaded: &Loaded) -> Result<(), Fault> {
    let risks = security::risks(loaded)?;
    if risks.is_empty() {
        return output::print("no risk found in the configuration; docs/security.md names the others\n");
    }
    let risks: Vec<String> = risks.iter().map(|risk| format!("risk: {risk}")).collect();
    Err(Fault::new(ExitCode::Config, risks.join("\n")))
}

/// The plan as TOML comments, so that the whole output is a configuration file.
fn describe_plan(text: &mut String, config: &Config, plan: &CorePlan, cpus: &[u32]) {
    let place = |cpu: Option<u32>| cpu.map_or("not pinned".to_owned(), |cpu| format!("CPU {cpu}"));
    let mut line = |content: String| writeln!(text, "# {content}").expect("a String takes every write");
    line(format!("plan of cores, of the usable CPUs {}:", cpu_list(cpus)));
    for executor in &plan.executors {
        let connections = match (executor.shard, executor.connections_max) {
            (None, _) => String::new(),
            (Some(_), Some(count)) => format!(", {count} connections"),
            (Some(_), None) if config.limits.connections_max == 0 => ", connections as the open files allow".to_owned(),
            (Some(_), None) => format!(", its share of {} connections", config.limits.connections_max),
        };
        let polls = match executor.poll_us {
            0 => String::new(),
            us => format!(", polls for {us} us"),
        };
        line(format!(
            "  {:<15} {:<10} ring of {}, turns of {} us{polls}{connections}",
            executor.name(),
            place(executor.cpu),
            executor.ring_depth,
            executor.turn_budget_us
        ));
    }
    line(format!("  {:<15} {}", "log sync", place(plan.log_cpu)));
    line(format!("  {:<15} {}", "control", place(plan.control_cpu)));
}
