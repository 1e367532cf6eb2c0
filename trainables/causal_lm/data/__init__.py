"""The text of a language model: its sources, its tokenizer, and arrays of tokens."""
