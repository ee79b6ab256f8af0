//! The verb `edit`: the data of a znode in the user's editor.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use serde_json::json;
use tempfile::NamedTempFile;
use tokio::process::Command;

use crate::cli::shell::paths::{check, refused};
use crate::cli::shell::znodes::Call;
use crate::exit::{ExitCode, Fault};

/// Of a file. Servers take requests of 1 MiB.
const FILE_BYTES_MAX: u64 = 64 << 20;

pub(super) async fn edit(call: &Call<'_>) -> Result<(), Fault> {
    let path = call.path();
    check(path)?;
    let (data, stat) = call.client.get_data(path, None).await.map_err(|error| refused(&error, path))?;
    let before = String::from_utf8(data.unwrap_or_default())
        .map_err(|_| Fault::new(ExitCode::Usage, format!("the data of {path} are not UTF-8; use get -b and set -b")))?;
    let failed =
        |error: io::Error| Fault::new(ExitCode::StorageUnavailable, format!("{}: {error}", env::temp_dir().display()));
    // Only this user may read it.
    let mut file = NamedTempFile::with_prefix("corral-").map_err(failed)?;
    file.write_all(before.as_bytes()).map_err(failed)?;
    call.screen.flush();
    run_editor(file.path()).await?;
    let mut after = read(file.path()).map_err(failed)?;
    // Editors end the last line.
    if !before.ends_with('\n') && after.ends_with(b"\n") {
        after.pop();
    }
    if after == before.as_bytes() {
        call.screen.show(|| format!("{path} is unchanged\n"), || json!({"path": path, "changed": false}));
        return Ok(());
    }
    match call.client.set_data(path, Some(&after), Some(stat.version)).await {
        Ok(stat) => {
            let text = || format!("{path} has version {} now\n", stat.version);
            call.screen.show(text, || json!({"path": path, "changed": true, "version": stat.version}));
            Ok(())
        }
        Err(error) => {
            let fault = refused(&error, path);
            let (_, kept) = file.keep().map_err(|error| failed(error.error))?;
            let sentence = format!("{}\nnothing was set; the text is in {}", fault.sentence, kept.display());
            Err(Fault { sentence, ..fault })
        }
    }
}

/// Runs `$VISUAL`, `$EDITOR`, or vi.
async fn run_editor(file: &Path) -> Result<(), Fault> {
    let named = ["VISUAL", "EDITOR"].into_iter().filter_map(env::var_os).find(|name| !name.is_empty());
    let mut script = named.unwrap_or_else(|| OsString::from("vi"));
    script.push(" \"$1\"");
    let ended = Command::new("sh").arg("-c").arg(&script).arg("sh").arg(file).status().await;
    let reason = match ended {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let sentence = format!("nothing was set: the editor failed: {reason}; set EDITOR to the command of an editor");
    Err(Fault::new(ExitCode::Internal, sentence))
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    let count = File::open(file)?.take(FILE_BYTES_MAX).read_to_end(&mut data)?;
    if count as u64 == FILE_BYTES_MAX { Err(io::Error::other("the file is too large")) } else { Ok(data) }
}
