"""Generation of tokens by a language model: batches of texts, decode steps, and ends of texts."""
