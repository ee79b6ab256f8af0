"""Import from the files of a real ZooKeeper: what is recorded, and how."""
