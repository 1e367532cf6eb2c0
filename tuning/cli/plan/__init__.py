"""Commands on a sweep file, before its sweep begins: what it would do, cost and need."""
