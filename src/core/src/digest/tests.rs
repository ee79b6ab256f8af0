//! The definition against digests that ZooKeeper computed, and the sum that moves against a walk over the tree.

use super::*;
use crate::evaluate::StateMachine;
use crate::view::View;

/// The sum over a walk, as ZooKeeper computes it when it loads a snapshot.
fn walked(view: &View) -> u64 {
    let mut sum = 0_u64;
    view.walk("/", |path, node| {
        sum = sum.wrapping_add(of_znode(path, node.data(), &node.stat()));
        true
    });
    sum
}

#[test]
fn an_empty_tree_has_the_digest_that_zookeeper_says() {
    let machine = StateMachine::new(View::empty(7), crate::session::SessionTable::default());
    assert_eq!(machine.view().tree_digest(), Some(1_371_985_504));
    assert_eq!(walked(machine.view()), 1_371_985_504);
}
