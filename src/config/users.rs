//! The users of SASL, from a JAAS file and from a file of users.
//!
//! At the start and at a reload, on a thread that may block.

use std::path::{Path, PathBuf};

use corral_core::sasl::Users;

use crate::config::file::{FILE_BYTES_MAX, read_private, read_text, text_of};
use crate::config::jaas;
use crate::config::keys::Security;
use crate::exit::{ExitCode, Fault};

/// The files that the configuration names.
pub(crate) fn files(security: &Security) -> Vec<&Path> {
    let named = [&security.sasl_jaas_file, &security.sasl_users_file];
    named.into_iter().map(PathBuf::as_path).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The users as they are configured. `None` if no file is named.
///
/// # Errors
/// As [`read`], as a `Config` fault.
pub(crate) fn configured(security: &Security) -> Result<Option<Users>, Fault> {
    read(security).map_err(|sentence| Fault::new(ExitCode::Config, format!("SASL: {sentence}")))
}

/// Reads the users. `None` if no file is named: then no mechanism is offered.
///
/// # Errors
/// A sentence that names the file, the cause and the remedy. It shows no password.
pub(crate) fn read(security: &Security) -> Result<Option<Users>, String> {
    if files(security).is_empty() {
        return Ok(None);
    }
    let mut users = Users::default();
    let path = &security.sasl_jaas_file;
    if !path.as_os_str().is_empty() {
        let text = read_text(path).map_err(|error| format!("{error}; name a readable JAAS file"))?;
        let found = jaas::users(&text, &security.sasl_jaas_section.0)
            .map_err(|error| format!("{}: {error}; correct the file, or security.sasl_jaas_section", path.display()))?;
        found.iter().for_each(|(name, password)| users.add(name, password));
    }
    let path = &security.sasl_users_file;
    if !path.as_os_str().is_empty() {
        let bytes = read_private(path, FILE_BYTES_MAX).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = text_of(bytes);
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            match line.split_once(':') {
                Some((name, password)) if !name.is_empty() && !password.is_empty() => users.add(name, password),
                _ => {
                    let (path, line) = (path.display(), at + 1);
                    return Err(format!("{path}:{line}: the line is not NAME:PASSWORD; correct it"));
                }
            }
        }
    }
    if !security.sasl_super_password.0.is_empty() {
        users.replace("super", &security.sasl_super_password.0);
    }
    if users.is_empty() {
        return Err("the files of SASL users hold no user; add one".to_owned());
    }
    Ok(Some(users))
}
