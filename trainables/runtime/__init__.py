"""One process that runs trial after trial: seeding, global state, memory, preemption."""
