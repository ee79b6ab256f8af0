"""Raw protocol tests; the same code passes on corral and on a real ZooKeeper (`--server zookeeper`), but for the differences below.

What corral does unlike ZooKeeper on purpose; the tests ask `context.is_corral` only for these:
  1. A wrong password leaves the session's present connection open (test_sessions.py, wrong_password).
  2. Op code 20, deleteContainer, is refused (test_requests.py, unknown_op_codes): ZooKeeper lets any client delete with it.
  3. Op code -10, createSession, is refused (test_requests.py, unknown_op_codes).
  4. A create flag that contradicts its op code is refused (test_writes.py, flags), where ZooKeeper 3.9 makes a plain node.
  5. `wchs` counts the connections that watch something, ZooKeeper also those that did (test_words.py, watches_of_several_kinds).
"""
