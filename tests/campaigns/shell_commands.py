"""The commands of the campaign `cli`, and the differences that are wanted.

SESSIONS are played line by line, each in a process of its own. `plain` uses a server without quotas, extended types and reconfig, and
`ensemble` the first of three servers. PROGRAMS are whole runs: arguments, and the standard input if there is one. ADDRESS stands for the
server's address, and SPECN for the addresses of the server N of the ensemble. FILE holds a list of them.
"""

from collections import namedtuple

SESSIONS = {
    "create": r"""
create
create /a one
create /a two
create /none/x
create bad
create //
create /a/
create /a/../b
create /a/.
create /a/b//c
create ""
create / x
create -s /a/s- d
create -s /a/
create -e /e x
create /e/c
create -e -s /a/e- x
create -es /a/e- x
create -se /a/e- x
create /a/last x -s -e
create -c /cont x
create -c -e /q x
create -cs /q x
create -t 100 -e /q x
create -t 100 -c /q x
create -t abc /q x
create -t 0 /q x
create -t -5 /q x
create -t 1099511627776 /q x
create -t 1099511627775 /ttl0 x
create -t 100000000 /ttl x
create -t100000000 /ttl2 x
create -t=100000000 /ttl3 x
create -s -t 100000000 /ttls- x
create -t
create -t -s /h1 x
create -t -x /h1 x
create -t -- /h1 x
create -s=1 /h1 x
create -z /x
create -ez /x
create --e /long
create --ephemeral /long
create /p1 data world:anyone:r
create /p2 data bogus:anyone:r
create /p3 data world
create bad data world
create /p4 data world:anyone:rq
create /p5 data auth::cdrwa
create /p6 data world:anyone:
create /p6a data world:anyone:cdrwa,ip:127.0.0.1:r
create /p6b data ,
create /p7 "two words" -e
create /p7a "-e"
create -- -dash
create -- /dd -e
create /p8 data world:anyone:r extra words
create /p9
get -s /p9
get -s /e
get -s /cont
get -s /ttl
create /p10 ""
get -s /p10
create /none/x/y -s
create /ü "ä ö"
get /ü
get -x /ü
create "/sp ace" "x"
ls "/sp ace"
create /q1 'it"s'
get /q1
create /q2 a"b c"d
create /q3 ''
get /q3
create /q4 "a""b"
create /q5 {"a":"b"}
get /q5
create /q6 'a
get /q6
create /q7 "it's
get /q7
create /q8	tab
get /q8
   get    /q8   
 
# comment
CREATE /x
create /zookeeper/foo x
create -e /zookeeper/e
delete /zookeeper/e
delete /zookeeper/foo
ls /
ls /a
""",
    "data": r"""
get
get -s
get bad
get /missing
get ""
get -
get - /a
get /a
get -b /a
get -x /a
get -x /p9
get -b /p9
get -x /p10
get -b /p10
get -bx /a
get -sb /a
get -x -s /a
get /a watch
get /a -s
get /a -q
get -q /a
get -sq /a
get /a w extra
get -s /a w
get --s /a
get "/a"
get "/a
get -- /a
get /
set
set /a
set /a "new data" -s
set -v 99 /a x
set /a x -v 99
set -v 1 /a x
set -v=2 /a x
set -v3 -s /a x
set -v 4 -v 9 /a x
set -v
set -v -1 /a x
set -b /a aGVsbG8=
get /a
set -b /a aGVsbG8
get /a
set -b -s /a /+8=
get -x /a
get -b /a
get /a
set -b /a Zmlyc3QKc2Vjb25kCXRhYg==
get /a
get -x /a
set -b /a cmVkIBtbMzFtIAAgZW5k
get /a
get -x /a
set /missing x
set bad x
set / rootdata
get /
set / ""
set /a ""
get /a
set /a -5
set /a -- -5
get /a
set -- /a -6
get /a
set /a a b c
get /a
set /a 0123456789abcdefghijklmnopqrstuvwxyz
get -x /a
set -q /a x
set /zookeeper/config x
set /zookeeper x
set /zookeeper ""
ls
ls /
ls -?
ls -? /a
ls bad
ls /missing
ls -s /
ls -s /a
ls -R /a
ls -R /missing
ls -R bad
ls -Rs /a
ls -sR -- /a
ls -x /a
ls /a -R
ls /a x -R
ls /a watch
ls /p9
ls -s /p9
ls -R /zookeeper
create /deep x
create /deep/b x
create /deep/a x
create /deep/a/z x
create /deep/b/y x
create /deep/a/z/w x
ls -R /deep
stat
stat -w
stat /a
stat /missing
stat bad
stat /deep w
stat -x /a
stat /e
stat /ttl
stat /cont
stat /zookeeper
stat /
delete
delete /missing
delete /deep
delete bad
delete -v 5 /p10
delete -v /p10
delete -x /p10
delete /p10 0
delete -v 0 /q3
delete -v 7 -v 0 /q4
delete /
delete /zookeeper
delete /zookeeper/quota
delete /q5 a b
deleteall
deleteall -x
deleteall /missing
deleteall bad
deleteall -b abc /deep
deleteall -b
deleteall /deep/a -b 1
ls -R /deep
deleteall -b 0 /deep/b
deleteall /deep
deleteall /q1 -b 2
deleteall -b -1 /q6
deleteall -b 0 /
deleteall /zookeeper
ls /
""",
    "acl": r"""
getAcl
getAcl /a
getAcl -s /a
getAcl /a /p1
getAcl -x /a
getAcl -sv /a
getAcl /missing
getAcl bad
getAcl /p6
getAcl /p6a
getAcl /zookeeper
getAcl /
setAcl
setAcl /a
create /acl x
create /acl/a x
create /acl/b x
setAcl /acl world:anyone:cdrwa,world:anyone:r
getAcl /acl
setAcl /acl world:anyone:rwcda -s
setAcl -v 0 /acl world:anyone:cdrwa
setAcl -v 2 /acl world:anyone:cdrwa
setAcl -v
setAcl -x /acl world:anyone:r
setAcl /missing world:anyone:crdwa
setAcl bad world:anyone:crdwa
setAcl /acl bogus:x:r
setAcl /acl junk
setAcl /acl junk,world:anyone:cdrwa
setAcl /acl ,
setAcl /acl ""
setAcl /acl world:someone:r
setAcl /acl ip:999.1.1.1:r
setAcl /acl ip:127.0.0.1/8:cdrwa
getAcl /acl
setAcl /acl ip:127.0.0.1/99:cdrwa
setAcl /acl digest:x:r
setAcl /acl "world:anyone:r, ip:127.0.0.1:cdrwa"
setAcl /acl auth::cdrwa
setAcl /acl x509:CN=a,O=b:r
setAcl /acl/a digest:a%b}:c:r
setAcl -R /acl world:anyone:cdrwa
setAcl -R -v 77 /acl world:anyone:cdrwa
setAcl -R /missing world:anyone:cdrwa
setAcl -R bad world:anyone:cdrwa
setAcl -Rs /acl/b world:anyone:cdrwa,world:anyone:r
setAcl /acl/b world:anyone:z
setAcl /acl/b ip:10.0.0.1:cdrwa
get /acl/b
set /acl/b x
create /acl/b/c x
delete /acl/b
setAcl /acl/b world:anyone:cdrwa
getAcl /acl/b
stat /acl/b
ls /acl/b
ls -R /acl
deleteall /acl
setAcl /acl world:anyone:rwa
delete /acl/a
delete /acl/b
create /acl/c x
deleteall /acl
setAcl /acl world:anyone:r
setAcl /acl world:anyone:cdrwa
setAcl -v 77 /acl world:anyone:cdrwa
set /acl x
getAcl /acl
whoami
whoami extra -q
addauth
addauth -x digest a
addauth digest bob:secret
whoami
create /auth x auth::cdrwa
getAcl /auth
create /auth1 x auth:ignored:cdrwa
getAcl /auth1
create /dig x digest:bob:ikIaKsbtGweaHnb/jKn7OHqbunM=:cdrwa
get /dig
create /dig2 x digest:al:ikIaKsbtGweaHnb/jKn7OHqbunM=:cdrwa
get /dig2
addauth digest bob:secret
addauth digest carol:other extra
whoami
addauth digest nocolon
whoami
addauth ip 1.2.3.4
connect ADDRESS
get /auth
whoami
getAcl /auth
getAcl /dig2
addauth digest super:superpw
whoami
get /auth
getAcl /auth
getAcl /dig
getAcl /acl/a
deleteall /acl
config -w
set -b /zookeeper/config c2VydmVyLjE9MTI3LjAuMC4xOjExOjEyOnBhcnRpY2lwYW50OzEyNy4wLjAuMToxMwp2ZXJzaW9uPTc3MDAwMDAwMDA1
config
config -c
set -b /zookeeper/config c2VydmVyLjE9MTI3LjAuMC4xOjExOjEyOnBhcnRpY2lwYW50OzEyNy4wLjAuMToxMwpzZXJ2ZXIuMj1oOjIxOjIyOm9ic2VydmVyOzIzCnNlcnZlci4zPWk6MzE6MzIKdmVyc2lvbj03NzAwMDAwMDAwMg==
config -c
set /zookeeper/config x
delete /dig2
delete /dig
addauth bogus foo
get /a
connect
get /a
addauth digest
get /a
addauth digest bob:secret
""",
    "watches": r"""
create /w x
create /w/a x
create /w/b x
get -w /w
set /w 1
set /w 2
get /w w
set /w 3
stat -w /w
set /w 4
stat /w w
set /w 5
stat -w /w/new
create /w/new x
get -w /w/missing
create /w/missing x
ls -w /w
create /w/c x
create /w/d x
ls /w w
delete /w/d
ls -w /w/c
delete /w/c
ls -wR /w
set /w 6
create /w/a/x y
set /w/a y
delete /w/b
get -w /w/a
stat -w /w/a
ls -w /w/a
deleteall /w/a
setAcl /w world:anyone:cdrwa
addWatch
addWatch -m
addWatch -m bogus /w
addWatch -x /w
addWatch -m PERSISTENT /w extra
addWatch -m PERSISTENT_RECURSIVE /w
set /w 7
create /w/r x
create /w/r/s x
set /w/r/s x
delete /w/r/s
setAcl /w/r world:anyone:cdrwa
addWatch -m persistent /w/r
set /w/r 1
create /w/r/t x
delete /w/r/t
delete /w/r
addWatch -m PERSISTENT_RECURSIVE /w/none
create /w/none x
removewatches
removewatches -x /w
removewatches /w -z
removewatches bad
removewatches /nothing
removewatches /w
removewatches /w
removewatches /w/r -d
removewatches /w/r -c
removewatches /w/r -r
removewatches /w/r -p
removewatches -r /w/none
get -w /w
removewatches /w -c
removewatches /w -d
ls -w /w
removewatches -cd /w
get -w /w
ls -w /w
removewatches /w -a
get -w /w
removewatches -l /w
removewatches -l /w
stat -w /w/later
removewatches /w/later -d
addWatch -m PERSISTENT /w
removewatches -p -l /w
printwatches
printwatches off
printwatches
get -w /w
set /w 9
connect
printwatches on
printwatches
printwatches maybe
printwatches
printwatches on extra
create -e /w/eph x
get -w /w/eph
getEphemerals
connect
stat /w/eph
get -w /w
close
set /w 10
connect
set /w 11
""",
    "quota": r"""
setquota
setquota -n
setquota -n 5
setquota -n 5 /quota
create /quota x
setquota -n 5 /quota
listquota /quota
setquota -b 10 /quota
listquota /quota
setquota -N 3 /quota
setquota -B 20 /quota
listquota /quota
setquota -n 0 /quota
setquota -n abc /quota
setquota -b -1 /quota
setquota -N 0 /quota
setquota -B -1 /quota
setquota -B x /quota
setquota -n 3000000000 /quota
setquota -b 99999999999999999999 /quota
setquota -n 5 -b 3 /quota
setquota -N 5 -n 3 /quota
setquota /quota
setquota -z 5 /quota
setquota -n 5 bad
setquota -n 5 /zookeeper/quota/q
setquota -n 5 /zookeeper
listquota /zookeeper
create /quota/a 123456789012345678901234567890
create /quota/a 1
create /quota/b 1
create /quota/c 1
create -e /quota/c 1
create -c /quota/c 1
set /quota/a 1234567890123456789012345678901
set /quota 1234567890123456789
setquota -n 1 /quota
setquota -b 1 /quota
setquota -n 9 -n 1 /quota
setquota -b0 /quota
setquota -n 5 /quota/a
setquota -n 5 /
listquota
listquota -x /quota
listquota /quota extra
listquota /nope
listquota bad
listquota /quota/a
delquota
delquota -z /quota
delquota /nope
delquota bad
delquota -n -b /quota
delquota -nb /quota
delquota -n /quota
listquota /quota
delquota -b /quota
delquota -N /quota
delquota -B /quota
listquota /quota
create /quota/c 12345678901234567890
delquota /quota
listquota /quota
ls -R /zookeeper
create /quota/p x
create /quota/p/q x
setquota -N 1 /quota/p/q
create /quota/p/q/r x
setquota -n 10 /quota
setquota -n 10 /quota/p/q/r
delquota /quota/p/q
ls -R /zookeeper
setquota -B 1 /quota/p
set /quota/p long
set /quota/p y
deleteall /quota
listquota /quota/p
delquota /quota/p
getAllChildrenNumber
getAllChildrenNumber -x /a
getAllChildrenNumber /a
getAllChildrenNumber /a /b
getAllChildrenNumber /missing
getAllChildrenNumber bad
getAllChildrenNumber /zookeeper
getEphemerals
getEphemerals -x
create -e /eph1 x
create -e /a/eph2 x
create -e /a/eph3 x
getEphemerals
getEphemerals /a
getEphemerals /a extra
getEphemerals /eph
getEphemerals /missing
getEphemerals bad
getEphemerals /
sync
sync -x
sync / extra
sync /missing
sync bad
version
version x
version -x
config
config -s
config -c
config -w
config -cs
config x
config -q
reconfig
reconfig -s
reconfig -q
reconfig -add
reconfig -add server.1=127.0.0.1:1:2;3
reconfig -remove 1
reconfig -members server.1=127.0.0.1:1:2;3
reconfig -v zz -remove 1
reconfig -v 100 -remove 1
reconfig -add x -members y
reconfig -file /nonexistent
reconfig -file a -members b
reconfig -file a -add b
reconfig -ad 5
reconfig -add=5
addauth digest super:superpw
reconfig -remove 1
reconfig -add server.2=127.0.0.1:1:2;3
reconfig -s -members server.1=127.0.0.1:1:2;3
""",
    "shell": r"""
bogus
bogus /a
help
?
Get /a
history
history extra
redo
redo 0
redo 3
redo 0x3
redo 010
redo 9999
redo -1
create /rd x
redo 42
history
redo 45
printwatches
close
close
ls /
create
bogus
history
printwatches
redo
whoami
version
connect
ls /
connect ADDRESS extra
close -x extra
connect ADDRESS
connect ADDRESS/chroot
ls /
create /x
create /
connect ADDRESS
create /chroot x
connect ADDRESS/chroot
ls /
create /in data
create /in/deep data
create /in
create -s /seq- x
create -e /eph x
create /none/x
create bad
ls -R /
ls -s /
get /
get -w /in
set /in 2
set -v 9 /in 2
stat /in/deep
stat /in/none
delete /in
delete /none
delete -v 3 /in/deep
delete /
getAcl /in
setAcl /in world:anyone:r
set /in x
setAcl -R /in world:anyone:cdrwa
getEphemerals
getEphemerals /
getEphemerals /chroot
addWatch -m PERSISTENT_RECURSIVE /
create /w x
delete /w
removewatches /
removewatches /
setquota -n 5 /in
listquota /in
setquota -n 1 /in
delquota /in
ls -R /zookeeper
config
config -s
sync /
sync /none
getAllChildrenNumber /
deleteall /in
deleteall /
whoami
connect
ls /
connect ADDRESS
ls -R /chroot
deleteall /chroot
deleteall /a
deleteall /missing -b 5
quit now
""",
    "plain": r"""
create /t x
create -c /t/c x
stat /t/c
create -t 100 /t/ttl x
create -s -t 100 /t/ttl x
create -t 0 /t/ttl x
setquota -N 1 /t
create /t/a x
create /t/b x
setquota -B 1 /t
set /t/a long
listquota /t
delquota /t
reconfig -remove 1
reconfig -add server.2=127.0.0.1:1:2;3
config
config -s
addauth digest super:superpw
reconfig -remove 1
deleteall /t
ls -R /
""",
    "ensemble": r"""
config
config -c
config -s
reconfig -remove 9
addauth digest super:secret
whoami
reconfig -remove 9
reconfig -remove x
reconfig -add x
reconfig -add server.4=nonsense
config -w
reconfig -add server.4=127.0.0.1:1:2:observer;3
config -cw
reconfig -v 1 -remove 4
reconfig -s -remove 4
config -c
reconfig -add server.5=127.0.0.1:1:2:observer;3,server.6=127.0.0.1:4:5:observer;6
config
reconfig -add server.7=127.0.0.1:7:8:observer;9 -remove 5,6
reconfig -members server.1=SPEC1,server.2=SPEC2,server.3=SPEC3
reconfig -file FILE
reconfig -members server.1=
config
create /e1 x
create -e /e1/x x
create -c /e1/c x
sync /
getEphemerals
deleteall /e1
connect
config -c
""",
}

PROGRAMS = (
    (("ls", "/"), None),
    (("ls", "-s", "/missing"), None),
    (("ls /",), None),
    (("get", "/sp ace"), None),
    (("create",), None),
    (("create", "/run", "a \"b' c"), None),
    (("get", "/run"), None),
    (("set", "/run", "-v", "5", "x"), None),
    (("bogus", "-x"), None),
    (("history",), None),
    (("redo", "0"), None),
    (("quit",), None),
    (("close",), None),
    (("connect", "ADDRESS"), None),
    (("setquota", "-n", "0", "/run"), None),
    (("listquota", "/run"), None),
    (("deleteall", "/zookeeper"), None),
    (("version",), None),
    (("-r", "get", "/run"), None),
    (("-bogus", "get", "/run"), None),
    (("-timeout", "9000", "-waitforconnection", "whoami"), None),
    (("-timeout", "abc", "version"), None),
    (("-server", "ADDRESS/run", "ls", "/"), None),
    (("-server", "ADDRESS/run/", "ls", "/"), None),
    (("-server", "ADDRESS,127.0.0.1:1/run", "-waitforconnection", "get", "/"), None),
    (("-server", "127.0.0.1:1", "-timeout", "2000", "ls", "/"), None),
    (("-server", "127.0.0.1:1", "-timeout", "2000", "-waitforconnection", "ls", "/"), None),
    (("delete", "-v", "abc", "/run"), None),
    (("set", "-v", "abc", "/run", "x"), None),
    (("set", "-v", "99999999999", "/run", "x"), None),
    (("set", "-b", "/run", "***"), None),
    (("setAcl", "-v", "abc", "/run", "world:anyone:r"), None),
    (("addWatch", "bad"), None),
    ((), ""),
    ((), "get /missing\n\n"),
    ((), "bogus\nget /run"),
    ((), "bogus\nquit\nget /run\n"),
    ((), "bogus\nget /run\nquit\n"),
    ((), "create\nhistory\nredo 0\n"),
    ((), "get /run\nredo 0\nredo\nredo abc\n"),
    ((), "get /missing\nclose\nget /run\n"),
)

Wanted = namedtuple("Wanted", "side commands lines reason")

# `side` names the part that is corral's: the server or the shell. `lines` is a regular expression of its whole output.
WANTED = (
    Wanted("shell", ("version",), r"out\|.*\d+\.\d+\.\d+.*(\ncode\|False)?", "the version is that of corral"),
    Wanted(
        "shell",
        (
            "-timeout abc version",
            "-server ADDRESS/run/ ls /",
            "-server 127.0.0.1:1 -timeout 2000 -waitforconnection ls /",
            "delete -v abc /run",
            "set -v abc /run x",
            "set -v 99999999999 /run x",
            "set -b /run ***",
            "setAcl -v abc /run world:anyone:r",
            "addWatch bad",
            repr("get /run\nredo 0\nredo\nredo abc\n"),
        ),
        r"(out\|.*\n)*(err\|.*\n)+code\|True",
        "zkCli ends with an exception of Java, and corral prints the error",
    ),
    Wanted(
        "shell",
        (
            "setquota -n 0 /run",
            "listquota /run",
            "deleteall /zookeeper",
            repr("create\nhistory\nredo 0\n"),
            repr("get /missing\nclose\nget /run\n"),
        ),
        r"(out\|.*\n)*(err\|.*\n)*code\|True",
        "zkCli ends with 0 although it failed",
    ),
    Wanted("shell", ("-bogus get /run",), r"err\|corral: -bogus is no option .*\ncode\|True", "zkCli leaves unknown options out"),
    Wanted(
        "shell",
        ("-server 127.0.0.1:1 -timeout 2000 ls /",),
        r"err\|KeeperErrorCode = ConnectionLoss for / \(127.0.0.1:1: .*\)\ncode\|True",
        "corral says why",
    ),
    Wanted(
        "shell", ("history",), r"(out\|\d+ - .*\n?)*(code\|False)?", "zkCli shows a line without a command, or one more of a closed session"
    ),
    Wanted("shell", ("printwatches", "redo"), r"(out\|printwatches is on)?", "zkCli says also that it is not connected"),
    Wanted("shell", ("help",), r"(out\|.*\n?)+", "zkCli has no help"),
    Wanted("shell", (" ",), "", "a line of blanks is an empty line"),
    Wanted("shell", ("config -c",), r"out\|<zxid .*> [^,].*", "servers without a client address have no place in a connect string"),
    Wanted(
        "shell",
        ("addauth bogus foo", "addauth digest"),
        r"(err\|KeeperErrorCode = AuthFailed .*\n)+event.*AuthFailed.*",
        "corral waits for the answer",
    ),
    Wanted("shell", ("reconfig -file /nonexistent",), r"err\|Error processing /nonexistent: No such file .*", "the file is named once"),
    Wanted("shell", ("create /",), r"err\|Created /", "the root of a chroot is /"),
    Wanted("shell", ("getEphemerals", "getEphemerals /"), r"out\|\[/eph\]", "paths are below the chroot, as everywhere"),
    Wanted("shell", ("getEphemerals /chroot",), r"out\|\[\]", "paths are below the chroot, as everywhere"),
    Wanted(
        "shell",
        tuple(f"setAcl -R {text} world:anyone:cdrwa" for text in ("/in", "/acl", "-v 77 /acl")),
        r"(err\|.* : /.*\n?)+",
        "each error is a line of standard error",
    ),
    Wanted(
        "shell",
        ("ls /",),
        r"err\|give verb and arguments .*\nerr\|Command not found.*\ncode\|True",
        "corral says what is wrong with the quotes",
    ),
)
