//! The lab that makes the table of costs counts requests, bytes, log entries, replies and events.

use corral_sim::fuzz::cost::table::measure;

#[test]
fn the_lab_counts_what_an_attack_costs() {
    let rows = measure("15,000 creates", |_| ());
    let [all, failing] = &rows[..] else { panic!("{} rows", rows.len()) };
    assert_eq!((all.bill.messages, all.bill.failed, failing.bill.failed), (2, 0, 1));
    assert!(failing.bill.logged > all.bill.logged && all.bill.others >= 2 * all.bill.logged, "{:?}", all.bill);
    assert!(all.bill.most_units > 15_000 && all.bill.largest_reply > 15_000 && all.longest_ns() > 0, "{:?}", all.bill);
    let rows = measure("200 recursive watchers", |_| ());
    let [watched] = &rows[..] else { panic!("{} rows", rows.len()) };
    assert!(watched.bill.others > 50 * watched.bill.logged, "{:?}", watched.bill);
}
