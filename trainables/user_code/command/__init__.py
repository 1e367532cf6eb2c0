"""Any program in any language as a trainable: `command` of a sweep file."""
