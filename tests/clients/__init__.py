"""Real client libraries against a real server process, over real sockets."""
