"""Conversations that a model is fine-tuned on: rows, chat templates, tokens."""
