"""Text that a language model is trained on: documents, tokenised and packed."""
