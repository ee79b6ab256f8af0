//! The identities that clients must prove, and super users, in a `zoo.cfg`.
//!
//! Start-up only, on the main thread. Everything is gathered first, because several keys make one value.

use crate::config::problem::{Draft, Source};
use crate::config::properties::{Keys, flag, items};
use crate::config::value::{Raw, Rejection};

/// The keys of authentication.
pub(crate) struct Found {
    pub(crate) keys: Keys,
}

impl Found {
    pub(crate) fn judge(self, draft: &mut Draft) {
        let requires_sasl = self.is_on("sessionRequireClientSASLAuth", draft);
        let is_enforced = self.is_on("enforce.auth.enabled", draft);
        let mut schemes: Vec<String> = Vec::new();
        if let Some((value, _)) = self.keys.get("enforce.auth.schemes").filter(|_| is_enforced.is_some()) {
            schemes.extend(items(value).map(str::to_owned));
        }
        if requires_sasl.is_some() {
            schemes.push("sasl".to_owned());
        }
        if let Some(line) = requires_sasl.or(is_enforced) {
            let source = Source::Line(line);
            if schemes.is_empty() {
                let rejection = Rejection::new("the key is missing", "name schemes, such as enforce.auth.schemes=sasl");
                return draft.problem(&source, "enforce.auth.schemes", rejection);
            }
            draft.assign("security.enforce_schemes", &Raw::List(schemes), source, "enforce.auth.schemes");
        }
        let supers = self.keys.iter().filter(|(key, _)| key.starts_with("superUser"));
        let (names, lines): (Vec<String>, Vec<u32>) =
            supers.map(|(_, (name, line))| (name.clone(), *line)).filter(|(name, _)| !name.is_empty()).unzip();
        if let Some(line) = lines.first() {
            draft.assign("security.sasl_super_users", &Raw::List(names), Source::Line(*line), "superUser");
        }
    }

    /// The line of the key, if it is on.
    fn is_on(&self, key: &str, draft: &mut Draft) -> Option<u32> {
        let (value, line) = self.keys.get(key)?;
        match flag(value) {
            Ok(is_on) => is_on.then_some(*line),
            Err(rejection) => {
                draft.problem(&Source::Line(*line), key, rejection);
                None
            }
        }
    }
}
