"""The sections of a sweep file, one module each."""
