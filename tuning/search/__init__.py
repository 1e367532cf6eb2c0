"""Searchers propose configurations; schedulers stop, pause and resume trials."""
