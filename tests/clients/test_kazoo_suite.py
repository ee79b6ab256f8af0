"""Those of kazoo's own tests that are about the protocol and quick. The campaign `clients` runs all of them, on a ZooKeeper as well."""

from clients import kazoo_suite

# Other ways of waiting, what is not the server's, recipes that test_kazoo_recipes.py has, and tests that wait for seconds.
LEFT_OUT = (
    "eventlet gevent selectors threading_handler sasl utils retry interrupt partitioner test_lock test_cache lease "
    "remove_session_watcher session_loss listener_only_called_on_real_state_change"
)


def test_kazoos_own_tests(options, subtests):
    kazoo_suite.run(options, subtests, f"not ({' or '.join(LEFT_OUT.split())})", compare=False)
