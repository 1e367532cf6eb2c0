"""What to try: the sweep file's schema, its loader, and the YAML files that ship."""
