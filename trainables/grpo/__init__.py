"""Reinforcement learning of a language model from checkable answers (GRPO)."""
