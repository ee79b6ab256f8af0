//! The effective configuration with its origin, as the rest of the server gets it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::config::cores::CorePlan;
use crate::config::keys::Config;
use crate::config::problem::Source;
use crate::exit::Fault;

/// The effective configuration with its origin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// The source of every key that is not at its built-in default, by key.
    pub(crate) sources: BTreeMap<&'static str, Source>,
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    /// Warnings for the operator; the server runs nevertheless.
    pub(crate) warnings: Vec<String>,
    /// Usual findings that are worth a line all the same.
    pub(crate) notes: Vec<String>,
}

impl Loaded {
    /// As `CorePlan::of`; a fault names the file.
    ///
    /// # Errors
    /// As `CorePlan::of`.
    pub(crate) fn core_plan(&self, usable_cpus: &[u32]) -> Result<CorePlan, Fault> {
        CorePlan::of(&self.config, usable_cpus).map_err(|fault| match &self.file {
            Some(file) => Fault::new(fault.code, format!("{}: {}", file.display(), fault.sentence)),
            None => fault,
        })
    }
}
