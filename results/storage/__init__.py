"""Files that survive crashes: atomic writes, retries, object storage, fencing."""
