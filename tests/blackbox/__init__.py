"""Raw protocol tests; the same code passes on corral and on a real ZooKeeper, but for the differences listed in run.py."""
