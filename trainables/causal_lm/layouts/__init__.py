"""Which layouts a language model fits, by rules and by memory, from its configuration: no torch."""
