"""What a page has for its scripts."""

import json
import re
from typing import Any


def messages(page: str) -> dict[str, Any]:
    """By kind; sections by their title."""
    found: dict[str, Any] = {}
    pattern = r'<script type="application/json" class="message" data-kind="(\w+)">(.*?)</script>'
    for kind, text in re.findall(pattern, page, re.DOTALL):
        data = json.loads(text)
        found[data["title"] if kind == "section" else kind] = data
    return found
