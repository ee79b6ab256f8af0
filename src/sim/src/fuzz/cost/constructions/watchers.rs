//! Writes that many clients watch, and requests beyond their budget.

use corral_wire::OpCode;

use super::super::genome::{Call, Gene, Tree};
use super::{List, call, create, many, many_reads};
use crate::fuzz::cost::genome::Path;

/// Below the limit on sessions, with room for who writes.
const MILLION: u32 = 999_990;

pub(super) fn add(list: &mut List) {
    let recursive = |count| {
        let add = Call { number: 1, ..Call::of(OpCode::AddWatch, "/") };
        vec![Gene::Fleet(count, vec![Gene::Call(0, add)])]
    };
    let once =
        |count| vec![Gene::Fleet(count, vec![Gene::Call(0, Call { flag: true, ..Call::of(OpCode::GetData, "/a") })])];
    let set = || vec![call(OpCode::SetData, "/a")];
    let mut small = |op, what, prepare, genes| list.add(op, what, Tree::Small, prepare, genes);
    small("setData", "999,990 watchers of the znode, once each", once(MILLION), set());
    small("setData", "1,000 recursive watchers", recursive(1000), set());
    small("setData", "10,000 recursive watchers", recursive(10_000), set());
    let sets = |times| vec![many(vec![Call::of(OpCode::SetData, "/a")], times)];
    small("multi", "10,000 setData of one znode beside 1,000 recursive watchers", recursive(1000), sets(10_000));
    small("multi", "40,000 setData of one znode, beyond the budget", vec![], sets(40_000));
    let longer = Call { path: Path { pad: 60, ..Path::numbered("/a/") }, ..create(Path::default()) };
    small(
        "multi",
        "8,000 creates, then 8,000 again that exist",
        vec![],
        vec![many(vec![longer.clone()], 8000), many(vec![longer], 8000)],
    );
    let between = |reads: Gene| vec![Gene::Burst(1, [set(), vec![Gene::Repeat(126, vec![reads])], set()].concat())];
    let lists = many_reads(Call::of(OpCode::GetChildren, "/wide"), 26);
    small("multiRead", "50,000 getData", vec![], vec![many_reads(Call::of(OpCode::GetData, "/a"), 50_000)]);
    list.add(
        "multiRead",
        "126 of 26 lists of 20,000 children, between two setData",
        Tree::Wide,
        vec![],
        between(lists),
    );
}
