"""Tournament trees that find the least loaded subscriber of a topic."""
