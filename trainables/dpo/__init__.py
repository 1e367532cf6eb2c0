"""Fine-tuning of a language model on preferred and rejected answers (DPO)."""
