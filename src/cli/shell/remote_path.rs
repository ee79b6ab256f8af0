//! A path on the servers of the shell, or on others.

use corral_client::{Client, Servers};

use crate::cli::client::exit_code;
use crate::cli::shell::paths::{check, usage};
use crate::cli::shell::znodes::Call;
use crate::exit::Fault;

/// A path with the session in which it is used.
pub(super) struct RemotePath {
    /// Empty for the servers of the shell.
    pub(super) host: String,
    pub(super) path: String,
    pub(super) client: Client,
}

impl RemotePath {
    /// Takes `/path`, or `HOST:PORT/path`, and connects to that host with the options of the shell.
    ///
    /// # Errors
    /// If the text is no place, or the host does not answer.
    pub(super) async fn open(call: &Call<'_>, text: &str) -> Result<RemotePath, Fault> {
        let (host, path) = text.split_at(text.find('/').unwrap_or_default());
        check(path)?;
        let mut client = call.client.clone();
        if !host.is_empty() {
            let servers = Servers::parse(host).map_err(|error| usage(&error.reason))?;
            client = Client::start(call.connection.connector(servers)?);
            let connected = client.connected().await;
            connected.map_err(|error| Fault::new(exit_code(error.code), format!("{host}: no session: {error}")))?;
        }
        Ok(RemotePath { host: host.to_owned(), path: path.to_owned(), client })
    }

    /// Whether the other path is this one, or below it. Two names of one server are not seen.
    pub(super) fn holds(&self, other: &RemotePath) -> bool {
        self.host == other.host && below(&self.path, &other.path).is_some()
    }

    /// Closes the session, if it is not that of the shell.
    pub(super) async fn close(self) {
        if !self.host.is_empty() {
            self.client.close().await;
        }
    }
}

/// The rest of a path below a root, with its slash. Empty for the root itself.
pub(super) fn below<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    match rest {
        "/" if root == "/" => Some(""),
        _ => (rest.is_empty() || rest.starts_with('/')).then_some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::below;

    #[test]
    fn paths_below_a_root() {
        assert_eq!((below("/a", "/a"), below("/a", "/a/b"), below("/a", "/ab")), (Some(""), Some("/b"), None));
        assert_eq!((below("/", "/"), below("/", "/a"), below("/a", "/")), (Some(""), Some("/a"), None));
    }
}
