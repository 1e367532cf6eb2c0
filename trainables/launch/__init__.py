"""Worker pools: processes that run attempts, and the broker between them and the driver."""
