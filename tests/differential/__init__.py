"""The differential tester: the same bytes to a real ZooKeeper and to corral, and the answers compared."""
