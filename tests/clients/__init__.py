"""Foreign clients: zkCli of a real ZooKeeper, and kazoo."""
