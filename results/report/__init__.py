"""HTML pages about one sweep or several; each is one file that needs no network."""
