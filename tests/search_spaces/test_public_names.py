from __future__ import annotations

import search_spaces


def test_public_names_are_resolved_on_demand() -> None:
    for name in search_spaces.__all__:
        assert getattr(search_spaces, name).__name__ == name
    assert not hasattr(search_spaces, "no_such_name")
