//! The verbs of the shell: one table for parsing, help and completion.

use crate::config::nearest;

/// An option of a verb, with one hyphen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opt {
    pub(super) name: &'static str,
    pub(super) takes_value: bool,
    /// One of several options that exclude each other.
    pub(super) group: bool,
    pub(super) about: &'static str,
}

/// A verb.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verb {
    pub(super) name: &'static str,
    /// Its arguments, as zkCli writes them.
    pub(super) usage: &'static str,
    pub(super) options: &'static [Opt],
    /// Whether the options are listed below the usage in an error.
    pub(super) lists_options: bool,
    /// Whether an option of the group must be given.
    pub(super) needs_group: bool,
    /// One line.
    pub(super) about: &'static str,
    pub(super) examples: [&'static str; 3],
}

const fn flag(name: &'static str, about: &'static str) -> Opt {
    Opt { name, takes_value: false, group: false, about }
}

const fn value(name: &'static str, about: &'static str) -> Opt {
    Opt { name, takes_value: true, group: false, about }
}

const fn one_of(name: &'static str, takes_value: bool, about: &'static str) -> Opt {
    Opt { name, takes_value, group: true, about }
}

const fn new(
    name: &'static str,
    usage: &'static str,
    options: &'static [Opt],
    about: &'static str,
    examples: [&'static str; 3],
) -> Verb {
    Verb { name, usage, options, lists_options: false, needs_group: false, about, examples }
}

impl Verb {
    pub(super) fn option(&self, name: &str) -> Option<&'static Opt> {
        self.options.iter().find(|option| option.name == name)
    }

    pub(super) fn is_in_group(&self, name: &str) -> bool {
        self.option(name).is_some_and(|option| option.group)
    }

    /// As zkCli prints it, if a command has too few arguments.
    pub(super) fn usage(&self) -> String {
        let usage = format!("{} {}", self.name, self.usage);
        if self.lists_options { format!("{usage}\n{}", self.options_text()) } else { usage }
    }

    /// All that is known of the verb.
    pub(super) fn help(&self) -> String {
        let options = if self.options.is_empty() { String::new() } else { format!("\n{}", self.options_text()) };
        format!(
            "{}\n\n{} {}\n{options}\nExamples:\n  {}\n",
            self.about,
            self.name,
            self.usage,
            self.examples.join("\n  ")
        )
    }

    fn options_text(&self) -> String {
        let head = |option: &Opt| format!(" -{}{}", option.name, if option.takes_value { " <arg>" } else { "" });
        let width = self.options.iter().map(|option| head(option).len()).max().unwrap_or_default() + 3;
        let mut options: Vec<&Opt> = self.options.iter().collect();
        options.sort_by_key(|option| option.name.to_lowercase());
        options.iter().map(|option| format!("{:width$}{}\n", head(option), option.about)).collect()
    }
}

/// The verb of this name.
pub(super) fn verb(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|verb| verb.name == name)
}

/// Where a misspelt verb may have been meant.
pub(super) fn similar(name: &str) -> Option<&'static str> {
    nearest(name, VERBS.iter().map(|verb| verb.name))
}

const STAT: Opt = flag("s", "Also the Stat");
const WATCH: Opt = flag("w", "Also watch it, once");

/// In the order of the alphabet.
pub(super) static VERBS: &[Verb] = &[
    new(
        "addWatch",
        "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE",
        &[value("m", "PERSISTENT or PERSISTENT_RECURSIVE")],
        "Watch a path, or all below it, until removewatches.",
        ["addWatch /app", "addWatch -m PERSISTENT /app", "removewatches /app"],
    ),
    new(
        "addauth",
        "scheme auth",
        &[],
        "Add an identity to the session.",
        ["addauth digest user:password", "whoami", "setAcl /app auth::cdrwa"],
    ),
    new(
        "apply",
        "[-n] [-y] [-delete] file",
        &[
            flag("n", "Only show the plan"),
            flag("y", "Write without a question"),
            flag("delete", "Delete znodes below that the file does not hold"),
        ],
        "Create and change the znodes of a JSON file: {\"/app\": \"text\", \"/app/b\": {\"base64\": \"AAE=\", \"acl\": [\"world:anyone:r\"], \"mode\": \"container\"}}.",
        ["apply -n app.json", "apply -y app.json", "apply -y -delete app.json"],
    ),
    new("close", "", &[], "Close the session.", ["close", "connect", "connect 10.0.0.2:2181"]),
    new(
        "config",
        "[-c] [-w] [-s]",
        &[STAT, WATCH, flag("c", "Only the client addresses, for a connect string")],
        "Show the members of the ensemble.",
        ["config", "config -c", "config -s"],
    ),
    new(
        "connect",
        "host:port",
        &[],
        "Connect again, or to other servers.",
        ["connect", "connect 10.0.0.2:2181", "connect a:2181,b:2181,c:2181/app"],
    ),
    new(
        "cp",
        "[-f] source target",
        &[flag("f", "Also replace data and ACLs of znodes that exist")],
        "Copy a znode with all below it, with data and ACLs, also from or to HOST:PORT/path. All copies are persistent.",
        ["cp /app /app-copy", "cp /app 10.0.0.2:2181/app", "cp -f 10.0.0.2:2181/app /app"],
    ),
    new(
        "create",
        "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
        &[flag("e", "Ephemeral"), flag("s", "Sequential"), flag("c", "Container"), value("t", "Time to live in ms")],
        "Create a znode.",
        ["create /app \"some text\"", "create -e -s /app/member-", "create /secret text auth::cdrwa"],
    ),
    new(
        "delete",
        "[-v version] path",
        &[value("v", "Only if it has this version")],
        "Delete a znode without children.",
        ["delete /app", "delete -v 3 /app", "deleteall /app"],
    ),
    new(
        "deleteall",
        "path [-b batch size]",
        &[value("b", "Znodes a transaction, 1000 without it")],
        "Delete a znode with all below it.",
        ["deleteall /app", "deleteall /app -b 100", "du /app"],
    ),
    Verb {
        ..new(
            "delquota",
            "[-n|-b|-N|-B] path",
            &[
                one_of("n", false, "num soft quota"),
                one_of("b", false, "bytes soft quota"),
                one_of("N", false, "num hard quota"),
                one_of("B", false, "bytes hard quota"),
            ],
            "Remove a quota, or one of its limits.",
            ["delquota /app", "delquota -N /app", "listquota /app"],
        )
    },
    new(
        "diff",
        "before after",
        &[],
        "Compare data and ACLs of two subtrees, also at HOST:PORT/path. A difference gives exit code 1.",
        ["diff /app /app-copy", "diff /app 10.0.0.2:2181/app", "diff a:2181/ b:2181/"],
    ),
    new(
        "du",
        "[-L depth] path",
        &[value("L", "Levels that are shown, 1 without it")],
        "Count znodes and bytes of data below each child, largest first.",
        ["du /", "du -L 2 /app", "tree /app"],
    ),
    new(
        "edit",
        "path",
        &[],
        "Change the data of a znode in $VISUAL, $EDITOR or vi. A line end that the editor adds at the end is left out.",
        ["edit /app", "get /app", "set /app text"],
    ),
    new("exit", "", &[], "Close the session, and leave.", ["exit", "quit", "close"]),
    new(
        "find",
        "path [-name glob] [-value text] [-size +N|-N|N] [-age +seconds|-seconds] [-owner session] [-depth N] [-type p|e]",
        &[
            value("name", "The last part of the path fits this, with * and ?"),
            value("value", "The data contain this"),
            value("size", "More, fewer or exactly so many bytes of data"),
            value("age", "Last change of the data, in seconds before this host's time"),
            value("owner", "Ephemerals of this session"),
            value("depth", "Levels below the path at most"),
            value("type", "p for persistent, e for ephemeral"),
        ],
        "Find znodes below a path that meet all conditions.",
        ["find / -name \"*-lock\" -type e", "find /app -size +100000", "find /app -value error -age -3600"],
    ),
    Verb {
        lists_options: true,
        ..new(
            "get",
            "[-s] [-w] [-b] [-x] path",
            &[
                flag("s", "Print znode stats additionally"),
                flag("w", "Watch for changes on the znode"),
                flag("b", "Output data in base64 format"),
                flag("x", "Output data in hexdump format"),
            ],
            "Show the data of a znode.",
            ["get /app", "get -s /app", "get -x /app"],
        )
    },
    new("getAcl", "[-s] path", &[STAT], "Show the ACL of a znode.", ["getAcl /app", "getAcl -s /app", "getAcl /"]),
    new(
        "getAllChildrenNumber",
        "path",
        &[],
        "Count the znodes below a path.",
        ["getAllChildrenNumber /", "getAllChildrenNumber /app", "du /app"],
    ),
    new(
        "getEphemerals",
        "path",
        &[],
        "List the ephemeral znodes of this session.",
        ["getEphemerals", "getEphemerals /app", "create -e /app/me"],
    ),
    new("help", "[verb]", &[], "List the verbs, or explain one.", ["help", "help create", "help find"]),
    new("history", "", &[], "Show the last commands with their numbers.", ["history", "redo 3", "redo 0"]),
    new(
        "listquota",
        "path",
        &[],
        "Show limits and use of a quota.",
        ["listquota /app", "setquota -N 1000 /app", "delquota /app"],
    ),
    new(
        "ls",
        "[-s] [-w] [-R] path",
        &[STAT, WATCH, flag("R", "All below, one path a line"), flag("?", "Help")],
        "List the children of a znode.",
        ["ls /", "ls -s /app", "ls -R /app"],
    ),
    new(
        "mv",
        "source target",
        &[],
        "Move a znode with all below it in one transaction. All become persistent.",
        ["mv /app /apps/app", "mv /old /new", "cp /large /larger"],
    ),
    new(
        "printwatches",
        "on|off",
        &[],
        "Say whether events of watches are shown, or change that.",
        ["printwatches", "printwatches off", "printwatches on"],
    ),
    new("quit", "", &[], "Close the session, and leave.", ["quit", "exit", "close"]),
    new(
        "reconfig",
        "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | [-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
        &[
            STAT,
            value("v", "Only if the config has this version, hexadecimal"),
            value("file", "File with all members"),
            value("members", "All members"),
            value("add", "Members that join"),
            value("remove", "Ids of members that leave"),
        ],
        "Change the members of the ensemble.",
        ["reconfig -remove 3", "reconfig -add 4=10.0.0.4:2888:3888;2181", "reconfig -file members.txt"],
    ),
    new("redo", "cmdno", &[], "Run a command of the history again.", ["history", "redo 0", "redo 12"]),
    new(
        "removewatches",
        "path [-c|-d|-a] [-l]",
        &[
            flag("c", "Those of children"),
            flag("d", "Those of data"),
            flag("p", "Persistent ones"),
            flag("r", "Persistent recursive ones"),
            flag("a", "All"),
            flag("l", "Also if no server is connected"),
        ],
        "Remove the watches of a path.",
        ["removewatches /app", "removewatches /app -d", "removewatches /app -l"],
    ),
    Verb {
        lists_options: true,
        ..new(
            "set",
            "path data [-s] [-v version] [-b]",
            &[
                flag("s", "Print znode stats additionally"),
                value("v", "Set with an expected version"),
                flag("b", "Supply data in base64 format"),
            ],
            "Replace the data of a znode.",
            ["set /app \"new text\"", "set /app text -v 3", "set -b /app AAEC"],
        )
    },
    new(
        "setAcl",
        "[-s] [-v version] [-R] path acl",
        &[STAT, value("v", "Only if the ACL has this version"), flag("R", "Also all below")],
        "Replace the ACL of a znode. auth:: stands for the identities that addauth added.",
        ["setAcl /app world:anyone:r", "setAcl -R /app auth::cdrwa", "setAcl /app ip:10.0.0.0/8:r,auth::cdrwa"],
    ),
    Verb {
        needs_group: true,
        ..new(
            "setquota",
            "-n|-b|-N|-B val path",
            &[
                one_of("n", true, "num soft quota"),
                one_of("b", true, "bytes soft quota"),
                one_of("N", true, "num hard quota"),
                one_of("B", true, "bytes hard quota"),
            ],
            "Limit the znodes or bytes of a subtree. Soft limits warn. Hard ones bind if the server has features.enforce_quota.",
            ["setquota -N 1000 /app", "setquota -B 1000000 /app", "listquota /app"],
        )
    },
    new("stat", "[-w] path", &[WATCH], "Show the Stat of a znode.", ["stat /app", "stat -w /app", "get -s /app"]),
    new(
        "sync",
        "path",
        &[],
        "Wait until the server has all that was committed before.",
        ["sync /", "sync /app", "get /app"],
    ),
    new(
        "tree",
        "[-L depth] [-d] path",
        &[value("L", "Levels below the path at most"), flag("d", "Also the data, cut at 60 characters")],
        "Draw all znodes below a path.",
        ["tree /app", "tree -L 2 /", "tree -d /app"],
    ),
    new("version", "", &[], "Show the version of this shell.", ["version", "config", "whoami"]),
    new(
        "watch",
        "[-c count] [-exec command] path",
        &[
            value("c", "End after so many changes"),
            value("exec", "Run this by sh for each change, with the data as its input"),
        ],
        "Show changes of a znode and all below it until Ctrl-C. Commands have CORRAL_EVENT, CORRAL_PATH and CORRAL_ZXID.",
        ["watch /app", "watch -c 1 /app", "watch -exec \"cat >> changes.txt\" /app"],
    ),
    new(
        "whoami",
        "",
        &[],
        "Show the identities of the session.",
        ["whoami", "addauth digest user:password", "getAcl /app"],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        for pair in VERBS.windows(2) {
            assert!(pair[0].name < pair[1].name, "{} stands before {}", pair[0].name, pair[1].name);
        }
        for verb in VERBS {
            assert!(
                verb.about.ends_with('.') && verb.examples.iter().all(|example| !example.is_empty()),
                "{}",
                verb.name
            );
            assert_eq!(similar(verb.name), Some(verb.name));
            assert!(verb.option("h").is_none(), "{}: -h shows its help", verb.name);
        }
        assert_eq!((similar("gte"), similar("creat"), similar("frobnicate")), (Some("get"), Some("create"), None));
    }
}
