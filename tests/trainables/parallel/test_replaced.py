from __future__ import annotations

from contextlib import suppress

import pytest

from trainables.parallel.replaced import replaced


class Base:
    @staticmethod
    def own() -> str:
        return "own"

    def inherited(self) -> str:
        return "inherited"


class Derived(Base): ...


@pytest.mark.parametrize(
    ("owner", "name"), [(Base, "own"), (Derived, "own"), (Derived, "inherited")]
)
def test_attribute_is_as_before_also_after_an_error(owner: type[Base], name: str) -> None:
    before = dict(vars(owner))
    with suppress(ZeroDivisionError), replaced(owner, name, lambda *_: "replaced"):
        assert getattr(owner(), name)() == "replaced"
        raise ZeroDivisionError
    assert dict(vars(owner)) == before
    assert getattr(owner(), name)() == name
