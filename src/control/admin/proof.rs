//! Proofs that a client may change something: a token, the super user's password, or its certificate.
//!
//! As ZooKeeper's `Authorization` header for its AdminServer: a scheme and a proof. Tokens are corral's own.

use std::path::{Path, PathBuf};

use corral_core::tree::acl::{DigestHash, digest_id};
use sha2::{Digest as _, Sha256};

use crate::config::file::read_private;

/// Largest file of tokens, bytes.
const FILE_BYTES_MAX: u64 = 4096;
/// Shortest token, characters.
const TOKEN_CHARACTERS_MIN: usize = 16;

/// Proofs that are accepted.
pub(crate) struct Proofs {
    /// One token a line.
    pub(crate) token_file: Option<PathBuf>,
    /// The scheme `digest`, if it is there: the super user's digest, and its hash function.
    pub(crate) digest: Option<(String, DigestHash)>,
    /// Subject of the super user's certificate.
    pub(crate) x509_super_user: Option<String>,
}

/// Why a proof is not accepted, in ZooKeeper's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    #[error("Auth info is missing for the command")]
    Missing,
    #[error("Not authenticated")]
    Wrong,
    #[error("Not authorized")]
    NotAllowed,
    #[error("Not authenticated: the server has no tokens; set admin.token_file there")]
    NoTokens,
    /// The file of tokens cannot be used, for this reason.
    #[error("Not authenticated: the server cannot use its admin.token_file; read its log")]
    Unusable(String),
}

impl Proofs {
    /// Whether the file of tokens can be used, if one is named.
    ///
    /// # Errors
    /// The cause and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.token_file.as_deref().map_or(Ok(()), |path| tokens(path).map(drop))
    }

    /// The scheme of a proof that is accepted: `authorization` is the header, `subject` that of the client's certificate.
    pub(super) fn accept(&self, authorization: Option<&str>, subject: Option<&str>) -> Result<&'static str, Denied> {
        let authorization = authorization.ok_or(Denied::Missing)?.trim();
        let (scheme, proof) = authorization.split_once(' ').unwrap_or((authorization, ""));
        let (scheme, is_super) = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => ("token", self.is_token(proof.trim())?),
            "digest" if proof.contains(':') => {
                let is_super = |(id, hash): &(String, DigestHash)| digest_id(proof.as_bytes(), *hash) == *id;
                return allowed("digest", self.digest.as_ref().is_some_and(is_super));
            }
            "x509" if subject.is_some() => return allowed("x509", self.x509_super_user.as_deref() == subject),
            _ => return Err(Denied::Wrong),
        };
        if is_super { Ok(scheme) } else { Err(Denied::Wrong) }
    }

    /// Compares digests: how long that takes tells nothing of a token.
    fn is_token(&self, proof: &str) -> Result<bool, Denied> {
        let path = self.token_file.as_ref().ok_or(Denied::NoTokens)?;
        let unusable = |sentence| Denied::Unusable(format!("admin.token_file: {}: {sentence}", path.display()));
        let tokens = tokens(path).map_err(unusable)?;
        Ok(tokens.iter().any(|token| Sha256::digest(token) == Sha256::digest(proof)))
    }
}

fn allowed(scheme: &'static str, is_super: bool) -> Result<&'static str, Denied> {
    if is_super { Ok(scheme) } else { Err(Denied::NotAllowed) }
}

/// The tokens of the file.
fn tokens(path: &Path) -> Result<Vec<String>, String> {
    let bytes = read_private(path, FILE_BYTES_MAX)?;
    let text =
        String::from_utf8(bytes).map_err(|_| "it is no text; write a token of letters and digits a line".to_owned())?;
    // Some editors begin a file with this mark.
    let text = text.trim_start_matches('\u{feff}');
    let tokens: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if tokens.is_empty() || tokens.iter().any(|token| token.len() < TOKEN_CHARACTERS_MIN) {
        return Err(format!(
            "a token needs {TOKEN_CHARACTERS_MIN} characters at least; make one with `openssl rand -hex 32`"
        ));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use corral_core::tree::acl::sha1;

    use super::*;

    #[test]
    fn each_proof_is_for_its_scheme() {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        std::fs::write(file.path(), "0123456789abcdef\n\nfedcba9876543210  \n").expect("the file is writable");
        let digest = (digest_id(b"super:secret", sha1), sha1 as DigestHash);
        let proofs = Proofs {
            token_file: Some(file.path().to_owned()),
            digest: Some(digest),
            x509_super_user: Some("CN=admin".to_owned()),
        };
        let accept = |header: &str, subject| proofs.accept(Some(header), subject);
        assert_eq!(proofs.accept(None, Some("CN=admin")), Err(Denied::Missing));
        assert_eq!(accept("Bearer 0123456789abcdef", None), Ok("token"));
        assert_eq!(accept("bearer  fedcba9876543210 ", None), Ok("token"));
        for wrong in
            ["Bearer", "Bearer ", "Bearer 0123456789abcde", "digest", "digest super", "x509", "ip", "", "Basic eDp5"]
        {
            assert_eq!(accept(wrong, None), Err(Denied::Wrong), "{wrong}");
        }
        assert_eq!(accept("digest super:secret", None), Ok("digest"));
        assert_eq!(accept("digest super:secrets", None), Err(Denied::NotAllowed));
        assert_eq!(accept("x509", Some("CN=admin")), Ok("x509"));
        assert_eq!(accept("x509", Some("CN=other")), Err(Denied::NotAllowed));
        let none = Proofs { token_file: None, digest: None, x509_super_user: None };
        for header in ["Bearer ", "digest super:secret", "x509"] {
            assert!(none.accept(Some(header), Some("")).is_err(), "{header}");
        }
    }

    #[test]
    fn a_file_of_tokens_is_private_and_its_tokens_are_long() {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        for (content, is_usable) in
            [("", false), ("short\n", false), ("0123456789abcdef\nshort", false), ("\u{feff}0123456789abcdef", true)]
        {
            std::fs::write(file.path(), content).expect("the file is writable");
            assert_eq!(tokens(file.path()).is_ok(), is_usable, "{content:?}");
        }
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).expect("it is ours");
        assert!(tokens(file.path()).is_err());
    }
}
