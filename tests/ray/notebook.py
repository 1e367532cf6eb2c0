"""Runs the cells of a notebook in this process, within a running event loop, as a kernel does."""

from __future__ import annotations

import asyncio
import json
import linecache
import sys
from pathlib import Path


async def main() -> None:
    for number, cell in enumerate(json.loads(Path(sys.argv[1]).read_text())["cells"]):
        if cell["cell_type"] == "code":
            name, lines = f"<cell {number}>", cell["source"]
            linecache.cache[name] = sum(map(len, lines)), None, lines, name  # as IPython does
            exec(compile("".join(lines), name, "exec"), vars(sys.modules["__main__"]))


if __name__ == "__main__":
    asyncio.run(main())
