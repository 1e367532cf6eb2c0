"""The sweep folder from the driver's side: created, locked, repaired, amended, restored."""
