//! Circles of files: file A uses items of file B, and B, perhaps through others, uses items of A. Such files can only be read
//! and changed together.
//!
//! What the finder sees, inside of one crate:
//! - paths that begin with `crate`, `self`, `super` or a child module, in `use` (with braces) and in code;
//! - an inherent `impl` of a type of another file: that file then has methods that stand here, so it counts as a user.
//!
//! What it does not see: code behind `#[cfg(test)]`; macros that make paths; paths through an alias (`use a::b as c`) beyond
//! the alias itself; methods of a trait. An item that a parent re-exports counts as the parent's: a child that names it
//! there makes a circle, and should name the file of the item. `mod child;` alone is not a use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module: the names that lead to it from the root of its crate.
type Module = Vec<String>;
/// Which files a file uses.
type Uses = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// The files of each circle, of all crates below `src` and `bench`, relative to `top`; each list is sorted.
pub(crate) fn circles(top: &Path, files: &[PathBuf]) -> Vec<Vec<PathBuf>> {
    let roots = files.iter().filter(|file| {
        let is_root = file.ends_with("src/lib.rs") || file.ends_with("src/main.rs");
        let package = file.parent().and_then(Path::parent).expect("below a folder");
        is_root && top.join(package).join("Cargo.toml").is_file()
    });
    roots.flat_map(|root| circles_of(&uses_of_crate(top, root))).collect()
}

fn uses_of_crate(top: &Path, root: &Path) -> Uses {
    let mut modules = BTreeMap::new();
    let mut texts = BTreeMap::new();
    collect(top, root, root.parent().expect("a folder"), &Module::new(), &mut modules, &mut texts);
    let mut uses = Uses::new();
    for (module, text) in &texts {
        let here = &modules[module];
        let mut imported = BTreeMap::new();
        for path in paths(text) {
            let Some((file, rest)) = resolve(&modules, module, &path) else { continue };
            if file != here {
                uses.entry(here.clone()).or_default().insert(file.clone());
                if let [name] = rest {
                    imported.insert(name.clone(), file.clone());
                }
            }
        }
        for definer in inherent_impls(text).iter().filter_map(|name| imported.get(*name)) {
            uses.entry(definer.clone()).or_default().insert(here.clone());
        }
    }
    uses
}

/// Follows the `mod name;` lines from `file`, whose children are in `folder`.
fn collect(
    top: &Path,
    file: &Path,
    folder: &Path,
    module: &Module,
    modules: &mut BTreeMap<Module, PathBuf>,
    texts: &mut BTreeMap<Module, String>,
) {
    let text = code(&fs::read_to_string(top.join(file)).expect("a source file"));
    for line in text.lines() {
        let declared = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let Some(name) = declared.strip_prefix("mod ").and_then(|rest| rest.trim_end().strip_suffix(';')) else {
            continue;
        };
        let child: Module = module.iter().cloned().chain([name.to_owned()]).collect();
        let flat = folder.join(format!("{name}.rs"));
        let path = if top.join(&flat).is_file() { flat } else { folder.join(name).join("mod.rs") };
        collect(top, &path, &folder.join(name), &child, modules, texts);
    }
    modules.insert(module.clone(), file.to_owned());
    texts.insert(module.clone(), text);
}

/// The text without comments and without what is compiled for tests alone, which stands last.
pub(crate) fn code(text: &str) -> String {
    let end = ["\n#[cfg(test)]\nmod ", "\n#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min();
    let lines = text[..end.unwrap_or(text.len())].lines();
    lines.map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Every path of two names or more, and what `use` names, without braces.
fn paths(text: &str) -> Vec<Vec<String>> {
    let (mut found, mut rest) = (Vec::new(), String::new());
    let mut parts = text.split('\n').peekable();
    while let Some(line) = parts.next() {
        let bare = line.trim_start();
        let bare = bare
            .strip_prefix("pub(crate) ")
            .or(bare.strip_prefix("pub(super) "))
            .or(bare.strip_prefix("pub "))
            .unwrap_or(bare);
        let Some(first) = bare.strip_prefix("use ") else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut tree = first.to_owned();
        while !tree.contains(';') {
            tree.push_str(parts.next().expect("`use` ends"));
        }
        expand(&[], tree.split(';').next().unwrap_or_default(), &mut found);
    }
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    for path in rest.split(|letter: char| !is_name(letter) && letter != ':').filter(|path| path.contains("::")) {
        found.push(path.split("::").map(|name| name.trim_matches(':').to_owned()).collect());
    }
    found
}

/// The paths of a `use` tree such as `a::{b, c::{self, d}}`.
fn expand(before: &[String], tree: &str, found: &mut Vec<Vec<String>>) {
    let tree = tree.trim();
    let (path, group) = tree.split_once('{').map_or((tree, None), |(path, group)| (path, Some(group)));
    let path = path.split(" as ").next().unwrap_or_default();
    let names = path.split("::").map(str::trim).filter(|name| !name.is_empty() && *name != "*");
    let names: Vec<String> = before.iter().cloned().chain(names.map(str::to_owned)).collect();
    let Some(group) = group else { return found.push(names) };
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                if !group[start..at].trim().is_empty() {
                    expand(&names, &group[start..at], found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The file in which a path ends, and the names behind it.
fn resolve<'a>(
    modules: &'a BTreeMap<Module, PathBuf>,
    from: &Module,
    path: &'a [String],
) -> Option<(&'a PathBuf, &'a [String])> {
    let (mut module, mut rest) = (from.clone(), path);
    match path.first()?.as_str() {
        "crate" => (module, rest) = (Module::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|name| name == "super") {
                module.pop()?;
                rest = &rest[1..];
            }
        }
        name => {
            module.push(name.to_owned());
            modules.get(&module)?;
            rest = &path[1..];
        }
    }
    while let Some(name) = rest.first() {
        module.push(name.clone());
        if name != "self" && !modules.contains_key(&module) {
            module.pop();
            break;
        }
        if name == "self" {
            module.pop();
        }
        rest = &rest[1..];
    }
    Some((modules.get(&module)?, rest))
}

/// The types that have an `impl` without a trait here.
fn inherent_impls(text: &str) -> Vec<&str> {
    let headers = text.lines().filter(|line| line.starts_with("impl") && !line.contains(" for "));
    let names = headers.filter_map(|line| {
        let rest = line.strip_prefix("impl")?;
        let rest = if rest.starts_with('<') { rest.split_once("> ")?.1 } else { rest };
        rest.trim_start().split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
    });
    names.collect()
}

/// The sets of files that reach each other.
fn circles_of(uses: &Uses) -> Vec<Vec<PathBuf>> {
    let reach = |from: &PathBuf| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            open.extend(uses.get(file).into_iter().flatten().filter(|next| seen.insert((*next).clone())));
        }
        seen
    };
    let reached: BTreeMap<&PathBuf, BTreeSet<PathBuf>> = uses.keys().map(|file| (file, reach(file))).collect();
    let circle_of = |file: &PathBuf| -> Vec<PathBuf> {
        let others = reached[file].iter().filter(|other| reached.get(other).is_some_and(|back| back.contains(file)));
        others.cloned().collect()
    };
    let circles: BTreeSet<Vec<PathBuf>> = uses.keys().map(circle_of).filter(|circle| circle.len() > 1).collect();
    circles.into_iter().collect()
}

#[test]
fn a_circle_is_found_in_each_form() {
    let found = |text: &str| -> Vec<String> { paths(text).iter().map(|path| path.join("::")).collect() };
    assert_eq!(found("use crate::{a::B, c::{self, D as E}};"), ["crate::a::B", "crate::c::self", "crate::c::D"]);
    assert_eq!(found("use super::*;\nlet x = child::new(crate::LIMIT);"), ["super", "child::new", "crate::LIMIT"]);
    assert_eq!(inherent_impls("impl<M: A<B = C>> Engine<M> {\nimpl Node {\nimpl Drop for Node {"), ["Engine", "Node"]);
    assert_eq!(code("a // b\n#[cfg(test)]\nmod tests {\n use super::*;"), "a ");
    let file = |name: &str| PathBuf::from(name);
    let uses =
        [("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")].map(|(from, to)| (file(from), BTreeSet::from([file(to)])));
    let mut all = Uses::new();
    uses.into_iter().for_each(|(from, to)| all.entry(from).or_default().extend(to));
    assert_eq!(circles_of(&all), [[file("b"), file("c")]]);
}
