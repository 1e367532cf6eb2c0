"""Rows of questions with their answers: what an update computes, each question once.

A row has a question, some of its answers without their last tokens, then the next question. By its
positions, which go on from the question's, an answer sees its question and no other answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from trainables.data.conversations.packing import best_fit

ROW = 1024
"""Tokens of a row that the answers of a large group are spread over."""
PASS = 8192
"""Tokens that are computed at once; fewer do not fill a GPU."""
Unit = tuple[list[int], dict[int, list[int]]]
"""A question and answers to it by their numbers, token ids."""


@dataclass(frozen=True)
class AnswerPacking:
    """How answers share rows.

    Attributes:
        most: tokens of a row.
        shared: whether answers share a row; else each has one, after its question.
        fixed: whether all rows have `most` tokens, and all passes one shape.
        rows: largest number of rows of a pass.
    """

    most: int
    shared: bool
    fixed: bool
    rows: int

    def pack(self, prompts: list[list[int]], answers: list[list[int]]) -> list[list[Unit]]:
        """The rows of answers, as many of each prompt in turn."""
        samples, units = len(answers) // len(prompts), []
        for first, prompt in zip(range(0, len(answers), samples), prompts, strict=True):
            sizes = [len(answer) for answer in answers[first : first + samples]]
            for items in self._bins(sizes, self.most - len(prompt)):
                units.append((prompt, {first + i: answers[first + i] for i in items}))
        widths = [_width(unit) for unit in units]
        bins = self._bins(widths, self.most if self.fixed else max(widths))
        return [[units[i] for i in items] for items in bins]

    def _bins(self, sizes: list[int], room: int) -> list[list[int]]:
        return best_fit(sizes, room) if self.shared else [[i] for i in range(len(sizes))]

    def passes(
        self, rows: list[list[Unit]], count: int
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """So many passes, all int64: tokens and their positions, [2, rows, length]; and [3, tokens
        of answers], their sources in the flattened rows, their answers (-1: padding), and their
        places in those.
        """
        size = self.rows if self.fixed else -(-len(rows) // count)
        longest = self.most if self.fixed else max(sum(map(_width, row)) for row in rows)
        length = -(-longest // 8) * 8
        for first in range(0, size * count, size):
            arrays, targets = torch.zeros(2, size * length, dtype=torch.int64), []
            for number, row in enumerate(rows[first : first + size]):
                begin = number * length
                for unit in row:
                    targets += _put(arrays, begin, unit)
                    begin += _width(unit)
            targets += [(0, -1, 0)] * ((size * length if self.fixed else 1) - len(targets))
            yield arrays.view(2, size, length), torch.tensor(targets).T


def _width(unit: Unit) -> int:
    """Tokens of a row for a unit: as many as targets, so that a pass has room for these, too."""
    prompt, answers = unit
    return max(len(prompt) - len(answers), 0) + sum(len(answer) for answer in answers.values())


def _put(arrays: torch.Tensor, begin: int, unit: Unit) -> list[tuple[int, int, int]]:
    """Write a unit into flattened rows; returns its targets."""
    prompt, answers = unit
    tokens, places, targets = list(prompt), list(range(len(prompt))), []
    for number, answer in answers.items():
        inner = range(len(answer) - 1)
        sources = [len(prompt) - 1, *(len(tokens) + i for i in inner)]
        targets += [(begin + source, number, i) for i, source in enumerate(sources)]
        tokens += answer[:-1]
        places += [len(prompt) + i for i in inner]
    arrays[:, begin : begin + len(tokens)] = torch.tensor([tokens, places])
    return targets
