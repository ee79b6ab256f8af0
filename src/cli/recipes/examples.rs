//! The examples in the help of the recipes.

pub(in crate::cli) const LOCK: &str = "\
The command gets CORRAL_PATH, CORRAL_ZNODE and CORRAL_FENCING_TOKEN. Each holder has a larger token than those before it.
Send it with each write to the protected system, which must refuse smaller ones: a paused holder may be late.

Examples:
  corral lock /locks/nightly -- ./backup.sh                     wait for the lock, then run
  corral lock /locks/nightly --timeout 0 -- ./backup.sh         only if it is free, else end with 19
  corral lock /locks/index --shared -- ./search.sh              with other readers
  corral lock /locks/db --on-lost signal -- ./migrate.sh        SIGTERM instead of SIGKILL if the session is lost";

pub(in crate::cli) const ELECT: &str = "\
The command gets CORRAL_PATH, CORRAL_ZNODE and CORRAL_FENCING_TOKEN, as that of `corral lock`.

Examples:
  corral elect /services/db/leader -- ./primary.sh              run as leader
  corral elect /services/db/leader --id db-1 -- ./primary.sh    with a name that observers see
  corral elect /services/db/leader --observe                    print the leader, and each later one
  corral elect /services/db/leader --observe --once --json      only the present one, as JSON";

pub(in crate::cli) const SEMAPHORE: &str = "\
Examples:
  corral semaphore /limits/downloads --leases 3 -- ./download.sh
  corral semaphore /limits/downloads --leases 3 --timeout 60 -- ./download.sh
  corral semaphore /limits/jobs --leases 10 --layout kazoo -- ./job.sh";

pub(in crate::cli) const BARRIER_ENTER: &str = "\
Examples:
  corral barrier enter /jobs/42/start --members 3 -- ./phase1.sh
  corral barrier enter /jobs/42/start --members 3              meet two others, and go on
  corral barrier enter /jobs/42/start --members 3 --timeout 60 -- ./phase1.sh";

pub(super) const BARRIER_LEAVE: &str = "\
Examples:
  corral barrier leave /jobs/42/start                           wait until all have left
  corral barrier leave /jobs/42/start --timeout 600             at most ten minutes
  corral barrier leave /jobs/42/start --timeout 0               only ask: 0 if it is empty, else 19";

pub(super) const BARRIER_WAIT: &str = "\
Examples:
  corral barrier set /maintenance
  corral barrier wait /maintenance --timeout 3600               until it is removed
  corral barrier remove /maintenance";

pub(super) const QUEUE_PUT: &str = "\
Examples:
  corral queue put /queues/mail 'to: a@example.org'
  corral queue put /queues/mail --priority 1 urgent             taken before others
  corral queue put /queues/mail < letter                        one item
  corral queue put /queues/mail --lines < letters               one item for each line, in transactions of up to 100";

pub(in crate::cli) const QUEUE_TAKE: &str = "\
An item is removed when the command has ended with 0. If it fails, or the session is lost, the next taker gets the item.

Examples:
  corral queue take /queues/mail -- ./send.sh                   the item is standard input
  corral queue take /queues/mail                                print it
  corral queue take /queues/mail --timeout 0 -- ./send.sh       end with 19 if there is none";

pub(super) const QUEUE_PEEK: &str = "\
Examples:
  corral queue peek /queues/mail                                end with 16 if there is none
  corral queue peek /queues/mail | head -1
  corral queue peek /queues/mail --server a:2181,b:2181";

pub(super) const QUEUE_LEN: &str = "\
Examples:
  corral queue len /queues/mail
  corral queue len /mail --server a:2181,b:2181/queues          below a chroot
  watch -n 5 corral queue len /queues/mail";

pub(in crate::cli) const COUNTER: &str = "\
Examples:
  corral counter /visits                                        print it
  corral counter /visits --add 1                                print the new value
  corral counter /visits --set 0
  corral counter /ids --add 1 --format int64                    as Curator's DistributedAtomicLong";

pub(in crate::cli) const GROUP_JOIN: &str = "\
A lost session is replaced by a new one, and the member joins again.

Examples:
  corral group join /services/web --id web-1 -- ./server        member while it runs
  corral group join /services/web --id web-1 --data 10.0.0.1:80 -- ./server
  corral group join /services/web --layout kazoo                until SIGTERM";

pub(super) const GROUP_LIST: &str = "\
Examples:
  corral group list /services/web
  corral group list /services/web --json | jq -r .data
  corral group list /web --server a:2181,b:2181/services        below a chroot";

pub(super) const GROUP_WATCH: &str = "\
Examples:
  corral group watch /services/web                              `joined NAME DATA`, `left NAME DATA`
  corral group watch /services/web --json
  corral group watch /services/web | ./update-proxy.sh";

pub(super) const KV_GET: &str = "\
Examples:
  corral kv get /config/db
  corral kv get /config/logo --raw > logo.png                   the exact bytes
  corral kv get /config/db --json | jq .version
  corral cli delete /config/db                                  removes a value";

pub(in crate::cli) const KV_SET: &str = "\
Examples:
  corral kv set /config/db 'host=10.0.0.5'
  corral kv set /config/logo < logo.png
  corral kv set /config/db 'host=10.0.0.6' --version 3          only if it is unchanged since";

pub(super) const KV_WATCH: &str = "\
Examples:
  corral kv watch /config/db                                    a line for each value
  corral kv watch /config/db -- ./reload.sh                     the value is standard input
  corral kv watch /config/db --json";

pub(in crate::cli) const COORDINATE: &str = "\
The command ends with 0 after a commit, and with 20 after an abort. The znodes stay, so that each site finds the decision.

Examples:
  corral 2pc coordinate /tx/42 --sites db,cache --timeout 30
  corral 2pc coordinate /tx/42 --sites db,cache --data 'move 5 to 7'
  corral cli deleteall /tx/42                                   when all sites know the decision";

pub(super) const VOTE: &str = "\
The command ends with 0 after a commit, and with 20 after an abort. A site that is started again keeps its vote. Without --timeout it
waits for the decision without a limit, also if the coordinator has ended.

Examples:
  corral 2pc vote /tx/42 --site db --timeout 60 -- ./prepare.sh && ./commit.sh
  corral 2pc vote /tx/42 --site db --timeout 60 -- ./prepare.sh
  corral 2pc vote /tx/42 --site cache --commit";
