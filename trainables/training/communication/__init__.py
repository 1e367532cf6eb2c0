"""How the gradients of data-parallel ranks travel: all-reduce algorithms, and compression."""
