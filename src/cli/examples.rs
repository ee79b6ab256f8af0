//! The examples that end the `--help` of each sub-command.
//!
//! Text alone. It knows no flags.

pub(super) const FIRST_STEPS: &str = "\
First steps:
  corral serve                          serve on 127.0.0.1:2181, data in ./data
  zkCli.sh -server 127.0.0.1:2181       connect with any ZooKeeper client
  corral check-config --config zoo.cfg  see what becomes of a ZooKeeper configuration

Data:
  Everything is kept in the data directory (--data-dir): snapshots and the log.
  An acknowledged write is on disk. Stop the server with SIGTERM; started again with the
  same directory it continues where it was.

Next:
  corral check-config --template > corral.toml   a file with every key, to edit
  corral serve --config corral.toml              serve with it
  corral serve --help                            flags that override the file
  corral health                                  check a running server
  corral doctor                                  find faults, with a remedy for each
  corral bench --op mix                          measure a running server
";

pub(super) const SERVE: &str = "\
Examples:
  corral serve                                          data in ./data, clients on 127.0.0.1:2181
  corral serve --config /etc/corral/corral.toml         a TOML file or a zoo.cfg
  corral serve --set 'commands.four_letter_whitelist=[\"*\"]'
  RUST_LOG=info,corral_engine=debug corral serve        more log lines of one module";

pub(super) const CHECK_CONFIG: &str = "\
Examples:
  corral check-config --config zoo.cfg                  effective values, and every problem
  corral check-config --template > corral.toml          a file with every key
  corral check-config --config zoo.cfg --security       its risks, with a remedy each
  corral check-config --set limits.connections_max=10   try a value";

pub(super) const HEALTH: &str = "\
Exit codes, as those of plugins for Nagios:
  0  OK        every check passes
  1  WARNING   it serves, and a check needs an operator
  2  CRITICAL  it accepts no sessions or no writes
  3  UNKNOWN   it does not answer

Examples:
  corral health                                         the server of this host
  corral health 10.0.0.1:8080                           another one
  corral health https://10.0.0.1:8080 --ca ca.pem       over TLS";

pub(super) const DOCTOR: &str = "\
Nothing is changed. Each finding has a command or a page, which is in the repository.

Exit codes, as those of plugins for Nagios:
  0  no findings
  1  the worst finding is a WARNING
  2  the worst finding is CRITICAL
  3  nothing could be examined

Examples:
  corral doctor                                         the server of this host
  corral doctor 10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080
  corral doctor /var/lib/corral                         a data directory, also of a stopped server
  corral doctor --config /etc/corral/corral.toml        this host and the directories of its server
  corral doctor --json | jq .findings                   for a script";

pub(super) const TOP: &str = "\
Each server shows its own clients, over its last two seconds: addresses, sessions with their addresses, and
paths of two levels. Work is the share of the
server's work for requests, as it estimates that.

Examples:
  corral top                                            the server of this host
  watch -n 2 corral top 10.0.0.1:8080                   another one, again and again
  corral top --json | jq .addresses[0]                  the address with the most requests";

pub(super) const RESCUE: &str = "\
Examples, with the server stopped:
  corral rescue --config /etc/corral/corral.toml        print the zxid of its data, and change nothing
  corral rescue --config /etc/corral/corral.toml --yes  make it the only voter
  corral rescue --set server.server_id=1 -c zoo.cfg     with another id than that of the file myid";

pub(super) const IMPORT_ZOOKEEPER: &str = "\
ZooKeeper must be stopped. Nothing is written into its directories. The same clients go on with their
sessions, ephemerals and ACLs, if they find the new server within their timeouts.

Examples:
  corral import zookeeper /var/lib/zookeeper --dry-run               what is there; write nothing
  corral import zookeeper /var/lib/zookeeper --data-dir data         then: corral serve --data-dir data
  corral import zookeeper /zk/data --log-dir /zk/log -d data         a zoo.cfg with a dataLogDir
  corral import zookeeper /zk/data --config corral.toml              the first server of an ensemble";

pub(super) const EXPORT_ZOOKEEPER: &str = "\
The server must be stopped. Of an ensemble, take the server with the highest zxid, and give the same
directory to each ZooKeeper server. Sessions that began on ZooKeeper go on there. Others expire.

Examples:
  corral export zookeeper /tmp/zk --data-dir data                    then dataDir=/tmp/zk in the zoo.cfg
  corral export zookeeper /tmp/zk --config /etc/corral/corral.toml   of a server of an ensemble
  corral export zookeeper /tmp/zk --config zoo.cfg                   with the file that ZooKeeper used";

pub(super) const EXPORT_SUBTREE: &str = "\
The server runs, corral or ZooKeeper. Znodes are read one after the other. Writes meanwhile may be there in part.

Examples:
  corral export jsonl /app --out app.jsonl                           of the server of this host
  corral export json --server 10.0.0.1:2181 | jq .znodes[].path      the paths of all znodes
  corral export tar /app --auth-file identity --out app.tar          with an identity";

pub(super) const IMPORT_SUBTREE: &str = "\
The file is checked whole, and a plan is shown, before anything is written. Run it again after it stopped: it goes on.

Examples:
  corral import jsonl app.jsonl --dry-run                            the plan; write nothing
  corral import jsonl app.jsonl /copy --yes                          to another path, without a question
  corral import tar app.tar --delete --server 10.0.0.1:2181          and delete what the file does not hold";

pub(super) const SNAPSHOT_GET: &str = "\
The server needs admin.token_file, and the file given here holds one of its tokens.

Examples:
  corral snapshot get --token-file token --out backup            of the server of this host
  corral snapshot get 10.0.0.1:8080 --token-file token --out backup
  corral import zookeeper backup --data-dir data                 make a data directory of it";

pub(super) const BACKUP: &str = "\
A backup holds the state of one zxid: znodes, sessions, ephemerals, ACLs and quotas. A running server of any role
sends it to the holder of a token, and serves meanwhile.

Examples:
  corral backup --token-file token --out backups/                of the server of this host
  corral backup 10.0.0.1:8080 --token-file token --out - | ssh store 'cat > corral.zst'
  corral backup --data-dir data --out data.zst                   of a stopped server
  corral backup --token-file token --out s3://bucket/corral.zst       to an object store, by AWS_* of the environment
  corral backup --token-file token --out backups/ --encrypt \"$(age-keygen -y key)\"   for the holder of this key";

pub(super) const ARCHIVE: &str = "\
An archive has backups, and all log entries between and behind them.
`corral restore` makes a data directory of any moment.
Started again, the command goes on where the archive ends.

Examples:
  corral archive --token-file token --to /mnt/archive            of the server of this host
  corral archive 10.0.0.1:8080 --token-file token --to s3://bucket/corral --encrypt \"$(age-keygen -y key)\"
  corral archive --token-file token --to /mnt/archive --once     what there is now, for cron
  corral restore /mnt/archive --to-time 2026-11-24T02:49 --dry-run";

pub(super) const CLI: &str = "\
On a terminal Tab completes verbs, options and paths. `help` lists the verbs, and `help VERB` explains one.
zkCli's options before the verb are known too: -server, -timeout, -r, -waitforconnection.

Examples:
  corral cli                                            a shell at 127.0.0.1:2181
  corral cli --server a:2181,b:2181/app ls -s /         one command, with a chroot
  corral cli --output json get /app                     for a script
  echo 'create /app text' | corral cli                  commands from a pipe";

pub(super) const RESTORE: &str = "\
Stop all servers of the ensemble first. Restore on one of them, and empty the data directories of the others.

Examples:
  corral restore backup.zst --dry-run                            check it, and say what it holds
  corral restore backup.zst --data-dir data                      then: corral serve --data-dir data
  corral restore backup.zst --config corral.toml                 the first server of an ensemble
  corral restore /mnt/archive --to-zxid 0x500000a1c --data-dir data   one moment of an archive
  corral restore backup.zst.age --identity key --data-dir data   an encrypted one";

pub(super) const VERIFY: &str = "\
Examples:
  corral verify backup.zst                              a backup
  corral verify backup.zst.age --identity key           an encrypted one
  corral verify /mnt/archive                            an archive
  corral verify /mnt/archive --max-age 3600             and its last moment is of the last hour
  corral verify data                                    a data directory, also beside its server";

pub(super) const SNAPSHOT_INSPECT: &str = "\
Examples:
  corral snapshot inspect data                          all snapshots of a data directory
  corral snapshot inspect data --json | jq .znodes      counts and checksums for a script
  corral snapshot inspect data/image-0000000100000005-0000000000000007.img";

pub(super) const SNAPSHOT_DIFF: &str = "\
Of a data directory the newest snapshot is compared, not the log behind it.

Examples:
  corral snapshot diff monday.zst tuesday.zst           what a day changed
  corral snapshot diff monday.zst data --data-only      without versions, zxids, times and sessions
  corral snapshot diff a.zst b.zst --json | jq -r '.path // empty'";

pub(super) const LOG_DUMP: &str = "\
Examples:
  corral log dump data | tail -1                        whether the log is whole, and where it ends
  corral log dump data | grep ' delete /config'         the sessions that deleted these znodes
  corral log dump data --path /config --since 2026-11-24T02:00
  corral log dump data --session 0x100000300000729      what one client asked for
  corral log dump /mnt/archive --path /config           the same of an archive
  corral log dump data --json | jq 'select(.kind == \"operation\")'";

pub(super) const IMPORT: &str = "\
Examples:
  corral import zookeeper /var/lib/zookeeper --data-dir data         the data of a stopped ZooKeeper server
  corral import jsonl app.jsonl --dry-run                            the plan of changes by a subtree
  corral import tar app.tar /copy --yes                              a subtree, to another path";

pub(super) const EXPORT: &str = "\
Examples:
  corral export zookeeper /tmp/zk --data-dir data                    all data of a stopped server
  corral export jsonl /app --out app.jsonl                           a subtree of a running server
  corral export tar /app --out app.tar                               as files and directories";

pub(super) const SNAPSHOT: &str = "\
Examples:
  corral snapshot inspect data                          all snapshots of a data directory
  corral snapshot diff monday.zst tuesday.zst           what a day changed
  corral snapshot get --token-file token --out backup   the present state of a running server";

pub(super) const LOG: &str = "\
Examples:
  corral log dump data                                  all operations of a data directory
  corral log dump data --path /config                   those on a subtree
  corral log dump data | tail -1                        whether the log is whole, and where it ends";

pub(super) const PROTOCOL: &str = "\
Examples:
  corral protocol | less                                read it
  corral protocol > protocol.md                         keep it
  corral protocol | grep -i watch                       the operations of watches";

pub(super) const VERSION: &str = "\
Examples:
  corral version                                        version, protocol and date of the build
  corral version | cut -d ' ' -f 2                      the number alone
  ssh host corral version                               of another host";

pub(super) const COMPLETIONS: &str = "\
Examples:
  corral completions bash > /usr/share/bash-completion/completions/corral
  corral completions zsh > /usr/share/zsh/vendor-completions/_corral
  corral completions fish > ~/.config/fish/completions/corral.fish
  source <(corral completions bash)                     for this bash alone";

pub(super) const MAN: &str = "\
Examples:
  corral man --out /usr/local/share/man/man1            then: man corral-serve
  corral man | man -l -                                 read corral(1) without a file
  corral man > corral.1                                 keep it";
