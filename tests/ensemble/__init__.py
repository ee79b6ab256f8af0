"""Tests that drive ensembles of real servers, corral's or ZooKeeper's, from the same files."""
