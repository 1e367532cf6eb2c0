"""Models on disk: a reference to one, the stages that put them out, and what each was made from."""
