"""A sweep's folder: find, lock, repair, trust, and copies of it elsewhere."""
