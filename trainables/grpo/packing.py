"""Rows of questions with their answers: what an update computes, each question once.

A row has a question, some of its answers without their last tokens, then the next question. By its
position, which goes on from the question's, an answer sees its question and no other answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from trainables.client import Rows
from trainables.data.conversations.packing import best_fit

ROW = 1024
"""Tokens of a row that the answers of a large group are spread over."""
PASS = 8192
"""Tokens that are computed at once; fewer do not fill a GPU."""


@dataclass(frozen=True)
class Packing:
    """How answers share rows.

    Attributes:
        most: tokens of a row.
        shared: whether answers share a row; else each has one, after its question.
        fixed: whether the rows of all steps have `most` tokens, and all passes one shape.
        rows: largest number of rows of a pass.
    """

    most: int
    shared: bool
    fixed: bool
    rows: int

    def pack(self, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> Packed:
        """The rows of answers, as many of each prompt in turn; token ids."""
        sizes, samples = [len(answer) for answer in answers], len(answers) // len(prompts)
        units = []
        for question, prompt in enumerate(prompts):
            first, room = question * samples, self.most - len(prompt)
            mine = sizes[first : first + samples]
            bins = best_fit(mine, room) if self.shared else [[i] for i in range(samples)]
            units += [(prompt, [first + i for i in items]) for items in bins]
        # a row has room for as many targets as inputs
        widths = [max(len(p), len(mine)) + sum(sizes[i] - 1 for i in mine) for p, mine in units]
        most = self.most if self.fixed else max(widths)
        rows = best_fit(widths, most) if self.shared else [[i] for i in range(len(units))]
        packed = Packed(np.zeros((2, len(rows), -(-most // 8) * 8), dtype=np.int64), [], [], [])
        for row, items in enumerate(rows):
            begin = 0
            for prompt, mine in (units[i] for i in items):
                begin = packed.put(row, begin, prompt, [(i, answers[i]) for i in mine])
            packed.ends.append(len(packed.order))
        return packed

    def passes(
        self, packed: Packed, targets: torch.Tensor, numbers: torch.Tensor, count: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Rows, targets and numbers of so many passes, at the end of which there may be padding.

        Args:
            packed: of `pack`.
            targets: place and token of each target, int64 [2, targets]; the places become those in
                the rows of the pass.
            numbers: float32 [numbers, targets]; 0 in padding.
            count: of the passes.
        """
        _, given, length = packed.arrays.shape
        rows = self.rows if self.fixed else -(-given // count)
        arrays = F.pad(torch.from_numpy(packed.arrays), (0, 0, 0, rows * count - given))
        ends = [0, *packed.ends, *[packed.ends[-1]] * (rows * count - given)]
        for first in range(0, rows * count, rows):
            part = slice(ends[first], ends[first + rows])
            padding = max(0, (rows * length if self.fixed else 1) - (part.stop - part.start))
            offset = torch.tensor([[first * length], [0]])
            mine = [F.pad(t, (0, padding)) for t in (targets[:, part] - offset, numbers[:, part])]
            yield arrays[:, first : first + rows], mine[0], mine[1]


@dataclass(frozen=True)
class Packed:
    """Rows of questions with answers.

    Attributes:
        arrays: token ids, and the position of each in its question with its answer, int64
            [2, rows, length]; padding is at position 0, where a question of its own begins.
        sources: the place in the flattened rows of what predicts each target, a token of an answer.
        order: (answer, place in it) of each target.
        ends: number of targets up to the end of each row.
    """

    arrays: Rows
    sources: list[int]
    order: list[tuple[int, int]]
    ends: list[int]

    def put(
        self, row: int, begin: int, prompt: Sequence[int], answers: list[tuple[int, Sequence[int]]]
    ) -> int:
        """Add a question and (number, token ids) of answers to a row; returns where they end."""
        before = row * self.arrays.shape[2]
        tokens, places = list(prompt), list(range(len(prompt)))
        for number, answer in answers:
            at, size = before + begin + len(tokens), len(answer)
            self.sources.extend([before + begin + len(prompt) - 1, *range(at, at + size - 1)])
            self.order.extend((number, i) for i in range(size))
            tokens += answer[:-1]
            places += range(len(prompt), len(prompt) + size - 1)
        self.arrays[:, row, begin : begin + len(tokens)] = tokens, places
        return begin + max(len(tokens), sum(len(answer) for _, answer in answers))
