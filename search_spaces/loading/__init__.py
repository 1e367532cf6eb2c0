"""From a sweep file to a checked spec that knows its lines, and back."""
