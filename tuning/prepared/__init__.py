"""`tune up`: a process that keeps a driver ready for the next `tune run`."""
