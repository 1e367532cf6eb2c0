"""Speed of `causal_lm` beside a plain PyTorch loop and `transformers.Trainer`."""
