//! Tests of the table of keys.

use super::keys::{KEYS, SECTIONS};
use super::value::{Limits, Raw};
use super::*;

#[test]
fn paths_are_unique_and_documented() {
    let paths: std::collections::BTreeSet<&str> = KEYS.iter().map(|key| key.path).collect();
    assert_eq!(paths.len(), KEYS.len(), "two keys share a path");
    for key in KEYS {
        assert!(key.doc.trim().ends_with('.'), "{} is not documented", key.path);
        assert!(SECTIONS.iter().any(|(section, _)| *section == key.section), "{} is in no section", key.path);
    }
}

#[test]
fn defaults_are_within_their_limits_and_units_are_in_names() {
    let mut config = Config::default();
    for key in KEYS {
        if let Ok(number) = (key.show)(&config).parse::<i128>() {
            (key.set)(&mut config, &Raw::Integer(number), key.limits).unwrap_or_else(|_| panic!("{}", key.path));
            assert!(key.limits != Limits::NONE, "{} is a number without limits", key.path);
        }
        if matches!(key.unit, "ms" | "us" | "bytes" | "percent") {
            assert!(key.path.contains(key.unit), "{} does not tell its unit {}", key.path, key.unit);
        }
    }
    assert_eq!(config, Config::default());
}
