"""The wire codec: plans compiled for each message class and version, and the loops that run them."""
