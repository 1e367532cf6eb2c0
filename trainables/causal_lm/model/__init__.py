"""The network of a language model, and what a rank computes of it."""
