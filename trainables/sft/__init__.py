"""Supervised fine-tuning: a language model learns to answer."""
