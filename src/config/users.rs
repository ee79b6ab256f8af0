//! The users of SASL, from a JAAS file and from a file of users.
//!
//! At the start and at a reload, on a thread that may block.

use std::path::{Path, PathBuf};

use corral_core::shard::sasl::Users;

use crate::config::file::{FILE_BYTES_MAX, read_private, read_regular, text_of};
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
    read(security).map_err(|sentence| Fault::new(ExitCode::Config, sentence))
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
        let bytes = read_regular(path, FILE_BYTES_MAX).map_err(|cause| {
            format!("security.sasl_jaas_file: {} {cause}; name a readable JAAS file", path.display())
        })?;
        let section = &security.sasl_jaas_section.0;
        let found = jaas::users(&text_of(bytes), section).map_err(|error| {
            format!(
                "security.sasl_jaas_file: {}: {error}; correct the file, or security.sasl_jaas_section",
                path.display()
            )
        })?;
        if found.is_empty() {
            return Err(format!(
                "security.sasl_jaas_file: {}: the section {section:?} has no option user_NAME=\"PASSWORD\"; add one (DIGEST-MD5 is served, Kerberos is not)",
                path.display()
            ));
        }
        // As in Java the last one counts.
        found.iter().for_each(|(name, password)| users.replace(name, password));
    }
    let path = &security.sasl_users_file;
    if !path.as_os_str().is_empty() {
        let bytes = read_private(path, FILE_BYTES_MAX)
            .map_err(|error| format!("security.sasl_users_file: {}: {error}", path.display()))?;
        let text = text_of(bytes);
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            match line.split_once(':') {
                Some((name, password)) if !name.is_empty() && !password.is_empty() => users.add(name, password),
                _ => {
                    let (path, line) = (path.display(), at + 1);
                    return Err(format!(
                        "security.sasl_users_file: {path}:{line}: the line is not NAME:PASSWORD; correct it"
                    ));
                }
            }
        }
    }
    if !security.sasl_super_password.0.is_empty() {
        users.replace("super", &security.sasl_super_password.0);
    }
    if users.is_empty() {
        return Err("security.sasl_users_file holds no user; add a line NAME:PASSWORD".to_owned());
    }
    Ok(Some(users))
}
