//! Texts in, lists or errors out. The expected errors are those of ZooKeeper 3.9.4, asked one by one.

use super::reconfig::Reconfig;
use super::*;
use crate::limits::RECONFIG_BYTES_MAX;
use crate::shared::Text;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use corral_wire::error::ErrorCode;
use proptest::prelude::*;

const THREE: &str = "server.1=10.0.0.1:2888:3888:participant;0.0.0.0:2181\n\
                     server.2=10.0.0.2:2888:3888:participant;0.0.0.0:2181\n\
                     server.3=c.example:2888:3888:participant;10.1.0.3:2181\n";

fn three() -> Servers {
    Servers::parse(THREE).expect("a list").0
}

fn text(text: &str) -> Option<Text> {
    Some(Text::from(text))
}

/// The new servers in the list, or the error.
fn outcome(request: &Reconfig, voters_min: usize) -> Result<String, i32> {
    let next = request.apply(&three(), voters_min).map_err(ErrorCode::code)?;
    assert_eq!(Servers::parse(&next.text(7)), Some((next.clone(), 7)), "it is read as it was written");
    let before = three();
    let new = next.0.iter().filter(|(id, server)| before.0.get(id) != Some(server));
    Ok(new.map(|(id, server)| format!("{id}={server}")).collect::<Vec<_>>().join(" "))
}

#[track_caller]
fn joins(joining: &str, expect: Result<&str, i32>) {
    let request = Reconfig { joining: text(joining), ..Reconfig::default() };
    assert_eq!(outcome(&request, 2).as_deref(), expect.as_deref(), "{joining:?}");
}

#[test]
fn the_text_is_zookeepers() {
    let (servers, version) = Servers::parse(&format!("{THREE}version=1c00000002")).expect("a list");
    assert_eq!(version, 0x1c_0000_0002);
    assert_eq!(servers.lines(), THREE);
    assert_eq!(servers.text(0), format!("{THREE}version=0"));
    assert_eq!((servers.voters(), servers.roles().count()), (3, 3));
    for bad in [
        "",
        "version=1",
        "foo",
        "server.0=a:1:2",
        "server.255=a:1:2",
        "server.1=a:1",
        "x=y",
        "version=1\nserver.1=a:1:2",
    ] {
        assert_eq!(Servers::parse(bad), None, "{bad:?}");
    }
    assert_eq!(Servers::parse("server.1=a:1:2\nserver.1=b:1:2"), None);
}

#[test]
fn joining() {
    for bad in [
        "x",
        "server.4",
        "server.4=",
        "=",
        "server.4=h",
        "server.4=h:1",
        "server.4=h:1:2",
        "server.4=h:1:2;",
        "server.4=h:1:2;x",
        "server.4=h:1:2;3;4",
        "server.4=h:1:2;3:4:5",
        "server.4=h:1:1;3",
        "server.4=h:1:2:boss;3",
        "server.4=h:1:2:observer:5;3",
        "server.4=h:x:2;3",
        "=h:1:2;3",
        "server.4=h:1:2|h:3:4:observer;3",
        "server.4=[::1:1:2;3",
        "server.4=a=b:1:2;3",
        " server.4 = h : 1 : 2 : observer ; 3 ",
        "group.1=1:2:3",
        "server.4=h:1:2: observer ; 3",
        "server.4=h: 1:2:observer;3",
        "server.4=h:1:2:observer; ",
        "server.4=;3",
        "server.4=h:1:2:observer;a:b",
        "server.4=10.9.8.7:1:2:observer;3,server.5=10.9.8.7:1:5:observer;6",
        "server.4=10.0.0.1:2888:9:observer;3",
        "server.4=[::1];3",
        "server.4=[::1]:;3",
    ] {
        joins(bad, Err(-8));
    }
    for broken in [
        "server.4=h:1:99999;3",
        "server.4=h:-1:2;3",
        "server.4=h:1:2;99999",
        "server.x=h:1:2;3",
        "server.=h:1:2;3",
        "server.9223372036854775808=h:1:2:observer;3",
        "server.4=;",
        "server.4=h:1:2;:",
    ] {
        joins(broken, Err(-5));
    }
    // Ours alone: ids that are no byte, the port 0.
    for other in ["server.-4=h:1:2;3", "server.300=h:1:2;3", "server.0=h:1:2;3", "server.4=h:0:2;3", "server.4=h:1:2;0"]
    {
        joins(other, Err(-8));
    }
    joins("", Ok(""));
    joins(",,,", Ok(""));
    joins("server.4=:1:2;3", Ok("4=localhost:1:2:participant;0.0.0.0:3"));
    joins("4=h:1:2;3", Ok("4=h:1:2:participant;0.0.0.0:3"));
    joins("foo.bar.4=h:1:2:observer;3;", Ok("4=h:1:2:observer;0.0.0.0:3"));
    joins("server.+4=h:+1:2:OBSERVER;03", Ok("4=h:1:2:observer;0.0.0.0:3"));
    joins("server.4=h:1:2:;3", Ok("4=h:1:2:participant;0.0.0.0:3"));
    joins("server.4=h:1:2;:3", Ok("4=h:1:2:participant;localhost:3"));
    joins("server.4=[::1]:1:2:observer;[::]:3", Ok("4=[0:0:0:0:0:0:0:1]:1:2:observer;[0:0:0:0:0:0:0:0]:3"));
    joins("server.4=10.9.8.7:1:2;10.9.8.7:1", Ok("4=10.9.8.7:1:2:participant;10.9.8.7:1"));
    joins("server.4=h:1:2;3,server.4=h:1:2;4", Ok("4=h:1:2:participant;0.0.0.0:4"));
    joins(
        "server.4=127.0.0.1:1:2;3,server.5=127.0.0.1:1:2;3",
        Ok("4=127.0.0.1:1:2:participant;0.0.0.0:3 5=127.0.0.1:1:2:participant;0.0.0.0:3"),
    );
    joins("server.3=c.example:2888:3888:observer;10.1.0.3:2181", Ok("3=c.example:2888:3888:observer;10.1.0.3:2181"));
}

#[test]
fn leaving() {
    let check = |leaving: &str, voters_min, expect: Result<usize, i32>| {
        let request = Reconfig { leaving: text(leaving), ..Reconfig::default() };
        let left = request.apply(&three(), voters_min).map(|next| next.0.len()).map_err(ErrorCode::code);
        assert_eq!(left, expect, "{leaving:?}");
    };
    for (none, left) in [("4", 3), (" 9 ", 3), ("-1", 3), ("", 3), ("9,,9", 3), ("300", 3), ("1", 2), ("+1", 2)] {
        check(none, 2, Ok(left));
    }
    for broken in ["x", "1, x", "server.1", "9223372036854775808"] {
        check(broken, 2, Err(-5));
    }
    check("1,2", 2, Err(-8));
    check("1,2", 1, Ok(1));
    check("1,2,3", 1, Err(-8));
}

#[test]
fn leaving_comes_before_joining() {
    let request = Reconfig { joining: text("server.1=h:1:2;3"), leaving: text("1"), ..Reconfig::default() };
    assert_eq!(outcome(&request, 2).as_deref(), Ok("1=h:1:2:participant;0.0.0.0:3"));
}

#[test]
fn whole_lists() {
    let check = |members: &str, voters_min, expect: Result<&str, i32>| {
        let request = Reconfig { members: text(members), joining: text("x"), leaving: text("x"), from: -1 };
        assert_eq!(outcome(&request, voters_min).as_deref(), expect.as_deref(), "{members:?}");
    };
    let with = |more: &str| format!("{THREE}{more}");
    check(THREE, 2, Ok(""));
    check(&THREE.replace('\n', ","), 2, Ok(""));
    check(&THREE.replacen('=', ":", 1), 2, Ok(""));
    check(&THREE.replacen('=', " = ", 1), 2, Ok(""));
    for nothing in ["version=7", "#c", "!c=d", ",,", "server.3=c.example:2888:3888:participant;10.1.0.3:2181"] {
        check(&with(nothing), 2, Ok(""));
    }
    check(&with("server.4=h:1:2:observer"), 2, Ok("4=h:1:2:observer"));
    check(&with("server.4=10.0.0.1:2888:2:observer;3"), 2, Ok("4=10.0.0.1:2888:2:observer;0.0.0.0:3"));
    for bad in
        ["x=1", "weight.1=1", "server.4=h:1:2;x", "group.1=1:2:3", "server.4=h:1:2:observer;3 ", "server.\\u0034=h:1:2"]
    {
        check(&with(bad), 2, Err(-8));
    }
    for broken in ["server.x=h:1:2:observer;3", "version=zz", "version="] {
        check(&with(broken), 2, Err(-5));
    }
    for (members, two, one) in [
        ("", Err(-8), Err(-5)),
        ("x", Err(-8), Err(-8)),
        ("server.1", Err(-8), Err(-8)),
        ("server.4=h:1:2;3", Err(-8), Ok("4=h:1:2:participant;0.0.0.0:3")),
        (
            "server.4=h:1:2;3,server.5=i:1:2:observer;3",
            Err(-5),
            Ok("4=h:1:2:participant;0.0.0.0:3 5=i:1:2:observer;0.0.0.0:3"),
        ),
        ("server.5=i:1:2:observer;3", Err(-5), Err(-5)),
    ] {
        check(members, 2, two);
        check(members, 1, one);
    }
}

#[test]
fn there_are_not_too_many() {
    let many: Vec<_> = (1..=65).map(|id| format!("server.{id}=h{id}:1:2;3")).collect();
    let all = |count: usize| Reconfig { members: text(&many[..count].join("\n")), ..Reconfig::default() };
    assert_eq!(all(64).apply(&three(), 2).map(|next| next.0.len()), Ok(64));
    assert_eq!(all(65).apply(&three(), 2), Err(ErrorCode::BadArguments));
}

proptest! {
    /// No text does harm, and an accepted list is written as it is read.
    #[test]
    fn whatever_is_sent(
        joining in "(server\\.)?[0-9]{0,3}=?[a-c0-9.:;|\\[\\]=, %-]{0,40}|.{0,30}",
        leaving in proptest::option::of("[0-9, x-]{0,12}"),
        full in any::<bool>(),
    ) {
        let (joining, members) = if full { (None, text(&joining)) } else { (text(&joining), None) };
        let request = Reconfig { joining, members, leaving: leaving.as_deref().map(Text::from), from: -1 };
        for voters_min in [1, 2] {
            if let Ok(next) = request.apply(&three(), voters_min) {
                prop_assert!(next.voters() >= voters_min);
                prop_assert_eq!(Servers::parse(&next.text(9)), Some((next, 9)));
            }
        }
    }
}

#[test]
fn a_request_that_names_more_servers_than_may_be_is_told_by_its_length() {
    let joining = |count: usize| Reconfig {
        joining: text(&(0..count).map(|id| format!("{}=:1:2;3,", id % 9 + 1)).collect::<String>()),
        ..Reconfig::default()
    };
    assert!(!joining(ENSEMBLE_SERVERS_MAX).is_too_long());
    assert!(joining(100_000).is_too_long());
    let members = Reconfig { members: text(&"\n".repeat(1000)), ..Reconfig::default() };
    assert!(members.is_too_long());
    let ports =
        |bytes: usize| Reconfig { joining: text(&format!("1={}", ":".repeat(bytes - 2))), ..Reconfig::default() };
    assert!(!ports(RECONFIG_BYTES_MAX).is_too_long());
    assert!(ports(RECONFIG_BYTES_MAX + 1).is_too_long());
}

#[test]
fn what_is_taken_may_be_given_up_by_a_server_that_is_given_anew() {
    let joining = |specs: &str| Reconfig { joining: text(specs), ..Reconfig::default() }.apply(&three(), 2);
    let next = joining("9=h9:1:2;h9:3,9=h8:1:2;h8:3,10=h9:1:2;h9:3").expect("nothing collides");
    assert_eq!(next.0.len(), 5);
    assert_eq!(joining("9=h9:1:2;h9:3,10=h9:1:7;h9:8"), Err(ErrorCode::BadArguments));
}
