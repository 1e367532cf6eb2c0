"""A causal language model: a small Llama from scratch, or any pretrained one, on real text."""
