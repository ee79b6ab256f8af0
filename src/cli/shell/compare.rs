//! The verb `diff`: two subtrees side by side.

use std::cmp::Ordering;

use serde_json::json;

use crate::cli::shell::remote_path::{RemotePath, below};
use crate::cli::shell::scan::{Found, Scan, Wants};
use crate::cli::shell::znodes::Call;
use crate::exit::{ExitCode, Fault};

const WANTS: Wants = Wants { data: true, acl: true, depth: None, skips_own: true };

/// Exit code 1 is a difference, as of other programs that compare.
pub(super) async fn diff(call: &Call<'_>) -> Result<(), Fault> {
    let [one, other] = [0, 1].map(|at| call.words.at(at).unwrap_or_default());
    let (one, other) = (RemotePath::open(call, one).await?, RemotePath::open(call, other).await?);
    let result = compare(call, &one, &other).await;
    one.close().await;
    other.close().await;
    if result? { Err(Fault::new(ExitCode::Internal, "")) } else { Ok(()) }
}

/// Shows all differences. Whether there is one.
async fn compare(call: &Call<'_>, one: &RemotePath, other: &RemotePath) -> Result<bool, Fault> {
    let (mut befores, mut afters) =
        (Scan::new(&one.client, &one.path, WANTS), Scan::new(&other.client, &other.path, WANTS));
    let (mut before, mut after) = (befores.next().await?, afters.next().await?);
    let (mut created, mut deleted, mut changed, mut equal) = (0, 0, 0, 0);
    call.screen.begin_list();
    loop {
        let order = match (&before, &after) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(before), Some(after)) => rest(one, before).split('/').cmp(rest(other, after).split('/')),
        };
        match (order, &before, &after) {
            (Ordering::Less, Some(found), _) => {
                deleted += 1;
                show(call, '-', rest(one, found), &[]);
            }
            (Ordering::Greater, _, Some(found)) => {
                created += 1;
                show(call, '+', rest(other, found), &[]);
            }
            (_, Some(before), Some(after)) => match differences(before, after).as_slice() {
                [] => equal += 1,
                what => {
                    changed += 1;
                    show(call, '~', rest(one, before), what);
                }
            },
            _ => {}
        }
        if order != Ordering::Greater {
            before = befores.next().await?;
        }
        if order != Ordering::Less {
            after = afters.next().await?;
        }
    }
    call.screen.note(&format!("created {created}, deleted {deleted}, changed {changed}, equal {equal}"));
    Ok(created + deleted + changed > 0)
}

fn rest<'a>(place: &RemotePath, found: &'a Found) -> &'a str {
    below(&place.path, &found.path).unwrap_or_default()
}

fn differences(before: &Found, after: &Found) -> Vec<&'static str> {
    let mut what = Vec::new();
    if before.data.as_deref().unwrap_or_default() != after.data.as_deref().unwrap_or_default() {
        what.push("data");
    }
    if before.acl != after.acl {
        what.push("ACL");
    }
    what
}

fn show(call: &Call<'_>, sign: char, path: &str, what: &[&str]) {
    let path = if path.is_empty() { "/" } else { path };
    let reasons = if what.is_empty() { String::new() } else { format!(" ({})", what.join(", ")) };
    let difference = match sign {
        '+' => "created",
        '-' => "deleted",
        _ => "changed",
    };
    let text = || format!("{sign} {}{reasons}\n", call.screen.name(path));
    call.screen.show(text, || json!({"difference": difference, "path": path, "what": what}));
}
