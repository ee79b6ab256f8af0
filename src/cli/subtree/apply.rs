//! Single znodes as a document describes them, on a running server. The main thread only. It does not know how the document is written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use corral_client::{Acl, Client};
use corral_core::path;

use crate::cli::subtree::plan::Plan;
use crate::cli::subtree::record::{Mode, Znode};
use crate::cli::subtree::walk::read;
use crate::cli::subtree::write::Writing;
use crate::exit::Fault;

/// A znode of a document. A part that is not given is kept, and empty or open to everyone in a new znode.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Option<Vec<Acl>>,
    /// Of a new znode.
    pub(crate) is_container: bool,
}

/// Compares a document with the server. Parents that are missing are created. With `deletes` all other znodes below are deleted.
///
/// # Errors
/// Of the server.
pub(crate) async fn plan(client: &Client, mut wishes: BTreeMap<String, Wish>, deletes: bool) -> Result<Plan, Fault> {
    let given: Vec<String> = wishes.keys().cloned().collect();
    let mut tops = Vec::new();
    for path in &given {
        let parents: Vec<&str> =
            std::iter::successors(Some(path.as_str()), |path| (*path != path::ROOT).then(|| path::parent(path)))
                .skip(1)
                .collect();
        if !parents.iter().any(|parent| given.binary_search_by(|one| one.as_str().cmp(parent)).is_ok()) {
            tops.push(path);
        }
        for parent in parents {
            wishes.entry(parent.to_owned()).or_default();
        }
    }
    let present = read(client, wishes.keys()).await?;
    let wanted = wishes.into_iter().map(|(path, wish)| {
        let found = present.get(&path);
        let data = wish.data.or_else(|| Some(found?.data.clone())).unwrap_or_default();
        let acl = wish.acl.or_else(|| Some(found?.acl.clone())).unwrap_or_else(|| vec![Acl::open()]);
        let mode = if wish.is_container { Mode::Container } else { Mode::Persistent };
        (path, Znode { data, acl, mode })
    });
    let mut plan = Plan::of(wanted.collect(), present);
    if deletes {
        for top in tops {
            plan.delete_others(client, top).await?;
        }
    }
    Ok(plan)
}

/// Writes a plan, and gives the counts in words.
///
/// # Errors
/// Of the server, or if others changed a znode since the plan.
pub(crate) async fn write(client: &Client, plan: &Plan) -> Result<String, Fault> {
    Writing::new(client, plan, Arc::new(AtomicBool::new(false))).run(plan).await
}
