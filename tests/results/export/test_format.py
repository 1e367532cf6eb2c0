"""Formats are found by name, and say which packages they need."""

from typing import ClassVar

import pytest

from results.export import make_format
from results.export.formats.torch_export import TorchExport
from search_spaces.errors import UserError


class Needy(TorchExport):
    needs: ClassVar = ("json", "no_such_package")


def test_check_installed_says_what_to_install() -> None:
    make_format("pt2").check_installed("pt2")
    with pytest.raises(UserError) as caught:
        Needy().check_installed("onnx")
    assert str(caught.value) == (
        "--to onnx: needs no_such_package; install with: pip install 'tune-platform[export]'"
    )


def test_make_format_suggests_a_name() -> None:
    with pytest.raises(UserError, match=r"--to onxn: no such format .did you mean 'onnx'"):
        make_format("onxn")
