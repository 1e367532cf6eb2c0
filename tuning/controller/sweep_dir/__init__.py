"""Operations of the driver on a sweep folder: create, lock, repair, amend, mirror, restore."""
