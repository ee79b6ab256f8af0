"""Raw protocol tests; the same code passes on corral and on a real ZooKeeper (`--server zookeeper`), but for the differences below.

What corral does unlike ZooKeeper on purpose is in tests/differential/explained.py. Here the tests ask `context.is_corral` for one more:
`wchs` counts the connections that watch something, ZooKeeper also those that did (test_words.py, watches_of_several_kinds).

What one request answers, and which events it causes, is compared with ZooKeeper's own answers in tests/differential/recordings.
"""
