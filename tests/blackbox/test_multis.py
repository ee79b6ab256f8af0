"""multi: all or nothing, results, and what it refuses to decode."""

from blackbox.operations import check, create, create2, delete, set_data
from support import jute
from support.expect import equal, refuses
from support.jute import BAD_VERSION, NO_NODE, RUNTIME_INCONSISTENCY


def test_all_operations_see_those_before(context):
    client = context.client()
    root = context.root(client)
    a, b = f"{root}/a", f"{root}/b"
    results = client.multi(
        create(a, b"1"), create(f"{a}/below"), create2(b), set_data(a, b"xx", 0), check(a, 1), delete(b), delete(f"{a}/below")
    )  # fmt: skip
    equal([(kind, error) for kind, error, _ in results], [(op, 0) for op in (1, 1, 15, 5, 13, 2, 2)])
    equal((results[0][2], results[2][2][0], results[3][2].version), (a, b, 1))
    stat = client.exists(a)
    equal((stat.czxid, stat.mzxid, results[2][2][1].czxid), (client.zxid,) * 3, "one zxid for all")
    equal(client.children(root), ["a"])


def test_an_empty_multi_succeeds(context):
    equal(context.client().multi(), [])


def test_sequential_names_count_up_and_are_given_back(context):
    client = context.client()
    root = context.root(client)
    ops = [create(f"{root}/s-", flags=jute.SEQUENTIAL)] * 2
    equal([path for _, _, path in client.multi(*ops)], [f"{root}/s-0000000000", f"{root}/s-0000000001"])
    client.multi(*ops, delete(f"{root}/none"))
    equal(client.create(f"{root}/s-", flags=jute.SEQUENTIAL), f"{root}/s-0000000002")


def test_a_failure_undoes_all_and_names_the_operation(context):
    client = context.client()
    root = context.root(client)
    client.create(f"{root}/a", b"old")
    before = client.exists(root)
    results = client.multi(
        create(f"{root}/z"), set_data(f"{root}/a", b"new"), delete(f"{root}/none"), set_data(f"{root}/a"),
        check(f"{root}/a", 77),
    )  # fmt: skip
    codes = (0, 0, NO_NODE, RUNTIME_INCONSISTENCY, RUNTIME_INCONSISTENCY)
    equal(results, [(-1, code, code) for code in codes])
    equal((client.exists(root), client.get(f"{root}/a")[0]), (before, b"old"))


def test_failures_of_each_kind(context):
    client = context.client()
    root = context.root(client)
    client.create(f"{root}/full")
    client.create(f"{root}/full/child")
    cases = [
        (create(root), jute.NODE_EXISTS),
        (create(f"{root}/no/x"), NO_NODE),
        (create("bad"), jute.BAD_ARGUMENTS),
        (delete(f"{root}/full"), jute.NOT_EMPTY),
        (delete("/zookeeper"), jute.BAD_ARGUMENTS),
        (set_data(root, b"", 9), BAD_VERSION),
        (check(root, 9), BAD_VERSION),
        (check(f"{root}/none"), NO_NODE),
        ((jute.CREATE, jute.create_body(f"{root}/x", entries=())), jute.INVALID_ACL),
    ]
    for operation, code in cases:
        equal(client.multi(operation), [(-1, code, code)])


def test_the_same_node_many_times(context):
    client = context.client()
    root = context.root(client)
    a = f"{root}/a"
    results = client.multi(create(a), set_data(a, b"q", 0), set_data(a, b"r", 1), delete(a, 2), create(a, b"again"))
    equal([error for _, error, _ in results], [0] * 5)
    equal((client.get(a)[0], client.exists(a).version), (b"again", 0))
    equal(client.multi(set_data(a, b"", 0), set_data(a, b"", 0))[1][:2], (-1, BAD_VERSION))
    stat = client.exists(root)
    equal((stat.cversion, stat.num_children), (3, 1))


def test_undecodable_multis_are_refused_as_a_whole(context):
    client = context.client()
    root = context.root(client)
    good = create(f"{root}/x")
    read = (jute.GET_DATA, jute.read_body(root))
    for operations in ([read], [good, read], [good, (jute.EXISTS, jute.read_body(root))], [good, (999, b"")],
                       [good, create(f"{root}/y", flags=9)]):  # fmt: skip
        refuses(jute.MARSHALLING_ERROR, client.multi, *operations)
    refuses(jute.MARSHALLING_ERROR, client.call, jute.MULTI, jute.multi_body([good])[:-9])
    equal(client.children(root), [])


def test_ephemerals_in_a_multi(context):
    client, other = context.client(), context.client()
    root = context.root(other)
    client.multi(*[create(f"{root}/{name}", flags=jute.EPHEMERAL) for name in "abc"])
    other.sync()
    equal(other.exists(f"{root}/b").ephemeral_owner, client.session_id)
    client.close()
    other.sync()
    equal(other.children(root), [])


def test_large_multis(context):
    client = context.client()
    root = context.root(client)
    results = client.multi(*[create(f"{root}/{number}", b"x" * 50) for number in range(2000)])
    equal({error for _, error, _ in results}, {0})
    equal(client.exists(root).num_children, 2000)
    client.multi(*[delete(f"{root}/{number}") for number in range(2000)])
    equal(client.children(root), [])
