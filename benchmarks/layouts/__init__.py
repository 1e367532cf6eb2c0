"""Speed and memory of `causal_lm` on each layout, beside plain torch code of the same layout."""
