//! The checks and effects of each write, in the order of protocol chapter 11.

use corral_wire::records::Stat;

use super::acl::{ADMIN, CREATE, READ, WRITE, allows, fixed_up};
use super::caller::Caller;
use super::draft::Draft;
use super::errors::{
    BAD_ARGUMENTS, INVALID_ACL, NO_AUTH, NO_CHILDREN_FOR_EPHEMERALS, NODE_EXISTS, QUOTA_EXCEEDED, UNIMPLEMENTED,
    expect, need,
};
use super::keeper;
use super::node::{DATA_CHANGED, Life, Node, length};
use super::paths::{PLACE, is_legal, parent_of};
use crate::request::{AclItem, Body, NO_NODE, Write};

const NAME_BYTES_MAX: usize = 16 << 10;

/// The path and the Stat of a znode that was made.
type Made = (String, Stat);

/// Checks the mode of a create, before all else.
fn check_mode(draft: &Draft<'_>, write: &Write) -> Result<(), i32> {
    let extended = draft.switches.extended_types;
    match write {
        Write::Create { flags: 5 | 6, .. } | Write::CreateExpiring { ttl: Some(_), .. } if !extended => {
            Err(UNIMPLEMENTED)
        }
        Write::Create { flags: 0..=4, .. } => Ok(()),
        Write::Create { .. } => Err(BAD_ARGUMENTS),
        Write::CreateExpiring { ttl: Some(ttl), .. } if !(1..1 << 40).contains(ttl) => Err(BAD_ARGUMENTS),
        _ => Ok(()),
    }
}

/// One write. `session` is the verdict on the sender's session.
pub(super) fn perform(
    draft: &mut Draft<'_>,
    caller: &Caller<'_>,
    session: Result<(), i32>,
    write: &Write,
) -> Result<Body, i32> {
    check_mode(draft, write)?;
    session?;
    match write {
        Write::Create { with_stat, path, data, acl, flags } => {
            let new = Node { data: data.clone(), acl: acl.clone(), ..Node::default() };
            let made = create(draft, caller, path, *flags, new, false);
            made.map(|(path, stat)| if *with_stat { Body::PathStat(path, stat) } else { Body::Path(path) })
        }
        Write::Delete { path, version } => draft.delete(caller, path, *version),
        Write::SetData { path, data, version } => set_data(draft, caller, path, data.clone(), *version),
        Write::SetAcl { path, acl, version } => set_acl(draft, caller, path, acl, *version),
        Write::Check { path, version } => check(draft, caller, path, *version),
        Write::CreateExpiring { path, ttl } => {
            let life = ttl.map_or(Life::Container, Life::Ttl);
            let new = Node { life, acl: vec![AclItem::open()], ..Node::default() };
            create(draft, caller, path, 0, new, false).map(|(path, stat)| Body::PathStat(path, stat))
        }
        Write::Ensure { path, data } => {
            let new = Node { data: data.clone(), acl: vec![AclItem::open()], ..Node::default() };
            create(draft, caller, path, 0, new, true).map(|(path, _)| Body::Path(path))
        }
        _ => keeper::perform(draft, caller, write),
    }
}

/// Makes a znode with this data, ACL and life. `ensures`: an existing znode will do.
fn create(
    draft: &mut Draft<'_>,
    caller: &Caller<'_>,
    path: &str,
    flags: i32,
    new: Node,
    ensures: bool,
) -> Result<Made, i32> {
    need(path.contains('/') && !path.contains('\0'), BAD_ARGUMENTS)?;
    let acl = fixed_up(&new.acl, caller.identities).ok_or(INVALID_ACL)?;
    let parent = draft.node(parent_of(path)).ok_or(NO_NODE)?.clone();
    need(allows(&parent.acl, CREATE, caller.identities), NO_AUTH)?;
    let sequential = flags == 2 || flags == 3;
    let path = if sequential { format!("{path}{:010}", parent.created) } else { path.to_owned() };
    need(is_legal(&path), BAD_ARGUMENTS)?;
    // The limit on a name; simulated clients come to none of the others on paths.
    need(path.rsplit('/').next().is_none_or(|name| name.len() <= NAME_BYTES_MAX), BAD_ARGUMENTS)?;
    draft.guard(&path)?;
    if let Some(node) = draft.node(&path) {
        return if ensures { Ok((path, node.stat())) } else { Err(NODE_EXISTS) };
    }
    need(parent.owner == 0, NO_CHILDREN_FOR_EPHEMERALS)?;
    let bytes = length(new.data.as_deref());
    need(!draft.is_beyond_quota(&path, 1, bytes), QUOTA_EXCEEDED)?;
    let owner = if flags == 1 || flags == 3 { caller.session } else { 0 };
    let node = Node { owner, life: new.life, ..Node::made(draft.zxid, caller.time, new.data, acl) };
    let stat = node.stat();
    draft.add(&path, node, parent);
    draft.count_if_usage(&path);
    draft.account(&path, 1, bytes);
    Ok((path, stat))
}

fn set_data(
    draft: &mut Draft<'_>,
    caller: &Caller<'_>,
    path: &str,
    data: Option<Vec<u8>>,
    version: i32,
) -> Result<Body, i32> {
    need(is_legal(path), BAD_ARGUMENTS)?;
    let mut node = draft.existing(caller, path, WRITE)?;
    need(path != PLACE || !draft.has_list, BAD_ARGUMENTS)?;
    let more = length(data.as_deref()) - length(node.data.as_deref());
    need(!draft.is_beyond_quota(path, 0, more), QUOTA_EXCEEDED)?;
    expect(node.version, version)?;
    node.set_data(draft.zxid, caller.time, data);
    let stat = node.stat();
    draft.step(DATA_CHANGED, path, &node, None);
    draft.set(path, node);
    draft.account(path, 0, more);
    Ok(Body::Stat(stat))
}

fn set_acl(draft: &mut Draft<'_>, caller: &Caller<'_>, path: &str, acl: &[AclItem], version: i32) -> Result<Body, i32> {
    need(is_legal(path), BAD_ARGUMENTS)?;
    let acl = fixed_up(acl, caller.identities).ok_or(INVALID_ACL)?;
    let mut node = draft.existing(caller, path, ADMIN)?;
    expect(node.aversion, version)?;
    node.acl = acl;
    node.aversion = node.aversion.wrapping_add(1);
    let stat = node.stat();
    draft.set(path, node);
    Ok(Body::Stat(stat))
}

fn check(draft: &Draft<'_>, caller: &Caller<'_>, path: &str, version: i32) -> Result<Body, i32> {
    need(is_legal(path), BAD_ARGUMENTS)?;
    expect(draft.existing(caller, path, READ)?.version, version)?;
    Ok(Body::Checked)
}
