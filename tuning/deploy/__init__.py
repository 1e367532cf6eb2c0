"""Files for other programs: rules, dashboards, manifests."""
