"""Foreign clients: zkCli, C and Java of a real ZooKeeper, kazoo, and systems that use them."""
