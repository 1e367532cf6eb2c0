"""Worker pools: the processes that run attempts, and the broker that connects them to the driver."""
