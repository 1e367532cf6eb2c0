"""A model for the world outside: written in another's format, and judged by the other's runtime."""
