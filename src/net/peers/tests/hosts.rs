//! Hosts that vanish: nothing is refused, nothing is acknowledged. Needs a network namespace of its own, which only
//! root makes; without it the test says that it looked at nothing.

use super::*;
use std::process::Command;

/// Set for the process that runs in the namespace.
const INSIDE: &str = "CORRAL_TEST_NAMESPACE";
const NAME: &str = "net::peers::tests::hosts::a_host_that_vanishes_is_noticed_busy_or_idle";

fn run(command: &str) -> bool {
    let words: Vec<&str> = command.split(' ').collect();
    Command::new(words[0]).args(&words[1..]).status().is_ok_and(|status| status.success())
}

#[test]
fn a_host_that_vanishes_is_noticed_busy_or_idle() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let able = run("unshare -n ip link set lo up");
    if !able {
        println!("not looked at: no network namespace can be made here, or iproute2 is missing");
        return;
    }
    let own = std::env::current_exe().expect("it runs");
    let child =
        Command::new("unshare").arg("-n").arg(own).args(["--exact", NAME, "--nocapture"]).env(INSIDE, "1").output();
    let output = child.expect("unshare can be run");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn inside() {
    assert!(run("ip link set lo up"));
    let (first, second) = pair(|_| ());
    // Nothing leaves any more, and neither side receives a report.
    assert!(run("ip link set lo down"));
    // The first has something to say, the second has not.
    first.send(2, Kind::Raft, &[1; 1000]).expect("there is room");
    for server in [&first, &second] {
        for _ in 0..2 {
            assert_eq!(server.down_any(), Reason::Dead);
        }
    }
    logged(&["its host does not answer; look at the host and the network"]);
    logged(&["is not reached, retrying", "the network"]);
    // It comes back, and so do the connections.
    assert!(run("ip link set lo up"));
    let _ = [first.up_any(), first.up_any()];
    first.send(2, Kind::Raft, b"back").expect("there is room");
    assert_eq!(second.frames(1)[0].1, "back");
}
