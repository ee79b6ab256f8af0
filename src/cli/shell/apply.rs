//! The verb `apply`: znodes as a JSON document describes them.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::{fmt, fs};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{self, Deserializer as _, MapAccess, Visitor};
use serde_json::{Value, json};

use crate::cli::shell::paths::{acl, check, usage};
use crate::cli::shell::znodes::Call;
use crate::cli::subtree::apply::{Wish, plan, write};
use crate::cli::subtree::consent::Consent;
use crate::cli::subtree::plan::line;
use crate::exit::{ExitCode, Fault};

/// A znode of the document that is no text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a text or an object")]
struct Described {
    text: Option<String>,
    base64: Option<String>,
    acl: Option<Vec<String>>,
    mode: Option<Mode>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Persistent,
    Container,
}

pub(super) async fn apply(call: &Call<'_>) -> Result<(), Fault> {
    let (words, screen, file) = (call.words, call.screen, call.path());
    let unreadable = |error| Fault::new(ExitCode::StorageUnavailable, format!("{file}: {error}"));
    let wishes = parse(&fs::read(file).map_err(unreadable)?)
        .map_err(|reason| usage(&format!("nothing was written: {file}: {reason}")))?;
    let plan = plan(call.client, wishes, words.has("delete")).await?;
    screen.begin_list();
    for step in plan.steps() {
        let (sign, path, words) = step;
        screen.show(|| line(step) + "\n", || json!({"step": sign.to_string(), "path": path, "words": words}));
    }
    screen.note(&plan.counts());
    screen.flush();
    let identities = call.client.who_am_i().await.unwrap_or_default();
    let consent = Consent {
        dry_run: words.has("n"),
        yes: words.has("y"),
        asks: io::stdin().is_terminal() && io::stdout().is_terminal(),
        authenticates: identities.iter().any(|(scheme, _)| scheme != "ip"),
        option: "-y",
    };
    let done = match consent.refusal(&plan).await? {
        Some(reason) => reason.to_owned(),
        None => write(call.client, &plan).await?,
    };
    screen.show(|| format!("{done}\n"), || json!({"done": done}));
    Ok(())
}

fn parse(text: &[u8]) -> Result<BTreeMap<String, Wish>, String> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let document = json.deserialize_map(Paths).and_then(|document| json.end().map(|()| document));
    let document = document.map_err(|error| error.to_string())?;
    let entry = |(path, value): (String, Value)| {
        let reason = check(&path).err().map(|fault| fault.sentence);
        let wish = reason.map_or_else(|| wish(value), Err);
        wish.map(|wish| (path.clone(), wish)).map_err(|reason| format!("{path:?}: {reason}"))
    };
    document.into_iter().map(entry).collect()
}

/// Descriptions by paths. Refuses a path that is there twice, because one of its descriptions would be lost.
struct Paths;

impl<'de> Visitor<'de> for Paths {
    type Value = BTreeMap<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object with a path for each znode")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut document = BTreeMap::new();
        while let Some((path, value)) = entries.next_entry::<String, Value>()? {
            if document.contains_key(&path) {
                return Err(de::Error::custom(format!("{path:?} is there twice")));
            }
            document.insert(path, value);
        }
        Ok(document)
    }
}

fn wish(value: Value) -> Result<Wish, String> {
    if let Value::String(text) = value {
        return Ok(Wish { data: Some(text.into_bytes()), ..Wish::default() });
    }
    let Described { text, base64, acl: entries, mode } =
        serde_json::from_value(value).map_err(|error| error.to_string())?;
    let data = match (text, base64) {
        (Some(_), Some(_)) => return Err("both text and base64".to_owned()),
        (Some(text), None) => Some(text.into_bytes()),
        (None, Some(encoded)) => Some(STANDARD.decode(encoded).map_err(|error| format!("base64: {error}"))?),
        (None, None) => None,
    };
    let acl = entries.map(|entries| match acl(&entries.join(",")) {
        (all, complaints) if complaints.is_empty() && !all.is_empty() => Ok(all),
        (_, complaints) => Err(format!("acl: give entries such as world:anyone:cdrwa {}", complaints.join(", "))),
    });
    Ok(Wish { data, acl: acl.transpose()?, is_container: mode == Some(Mode::Container) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use corral_client::Acl;

    #[test]
    fn documents_describe_znodes() {
        let text = br#"{"/a": "x", "/b": {"base64": "AAE=", "acl": ["world:anyone:r", "ip:::1:cdrwa"], "mode": "container"}, "/c": {}}"#;
        let wishes = parse(text).expect("valid");
        assert_eq!(wishes["/a"], Wish { data: Some(b"x".to_vec()), ..Wish::default() });
        let acl = Some(vec![Acl::new(1, "world", "anyone"), Acl::new(31, "ip", "::1")]);
        assert_eq!(wishes["/b"], Wish { data: Some(vec![0, 1]), acl, is_container: true });
        assert_eq!(wishes["/c"], Wish::default());
        for (text, reason) in [
            ("[]", "expected an object"),
            (r#"{"/a": "", "/a": "x"}"#, "is there twice"),
            (r#"{"a": ""}"#, "must start with /"),
            (r#"{"/a": 5}"#, "expected a text or an object"),
            (r#"{"/a": {"data": ""}}"#, "unknown field `data`"),
            (r#"{"/a": {"text": "", "base64": ""}}"#, "both"),
            (r#"{"/a": {"base64": "?"}}"#, "base64"),
            (r#"{"/a": {"acl": []}}"#, "acl"),
            (r#"{"/a": {"acl": ["world:anyone:x"]}}"#, "Unknown perm type"),
            (r#"{"/a": {"mode": "ephemeral"}}"#, "unknown variant"),
        ] {
            let found = parse(text.as_bytes()).expect_err("refused");
            assert!(found.contains(reason), "{text}: {found}");
        }
    }
}
