"""What the driver does with a sweep folder: create, lock, repair, amend, mirror, restore."""
