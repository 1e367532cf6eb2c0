"""The sweep file's schema: one module per section."""
