"""Export a model to the formats of other runtimes, and verify the copy with those runtimes.

It imports nothing: each worker imports `exportable`, and needs no format.
"""
