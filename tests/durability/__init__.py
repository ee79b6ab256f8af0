"""What survives when the server's process does not."""
