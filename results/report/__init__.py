"""The report of a sweep: one HTML page that needs no network."""
