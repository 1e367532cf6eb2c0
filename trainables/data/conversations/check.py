"""A look at rows before a worker starts: their number, and the first mistake; no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from search_spaces.errors import UserError
from trainables.data.bad_rows import BadRow, BadRows, OnBadData, OnLong
from trainables.data.conversations.rows import Conversation, Row


def check_rows(
    rows: Iterable[Row], tokenizer: Path, most: int, on_bad: OnBadData, on_long: OnLong | None
) -> tuple[str | None, int, str]:
    """Read all rows.

    Args:
        rows: of `read_rows`.
        tokenizer: file `tokenizer.json` of the model, if it is there.
        most: number of tokens for which there is room.
        on_bad: `skip`: only mistakes in whole files count.
        on_long: reaction to more tokens; None: the same.

    Returns:
        The first mistake that is not skipped; the number of conversations; what is left out of
        them, in words.
    """
    problem, total, left_out, cut = None, 0, 0, 0
    bad, too_long = BadRows(on_bad), _length_check(tokenizer, most)
    try:
        for row in bad.leave_out(rows):
            total += 1
            left_out += row.left_out > 0
            if (count := too_long(row)) is not None and on_long == "truncate":
                cut += 1
            elif count is not None:
                bad.add(long_row(row, f"at least {count}", most, on_long))
    except UserError as e:
        problem = str(e)
    remarks = {
        "end with a turn that is no answer, which is left out": left_out,
        "are skipped": len(bad.problems),
        "or more are cut": cut,
    }
    words = (f"; {count:,} {words}" for words, count in remarks.items() if count)
    return problem, total, "".join(words)


def long_row(talk: Conversation, tokens: str, most: int, on_long: OnLong | None) -> BadRow:
    """The mistake of a conversation with so many tokens."""
    reactions: dict[OnLong | None, OnBadData] = {"refuse": "fail", "skip": "skip"}
    why = f"{tokens} tokens, and sequence_length {most - 1} leaves room for {most}"
    return BadRow(f"{talk.place}: {why} (see data.on_long)", reactions.get(on_long))


def _length_check(file: Path, most: int) -> Callable[[Conversation], int | None]:
    """A function that counts the tokens of a conversation without the template, if too many."""
    if not file.is_file():
        return lambda talk: None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()

    def count(talk: Conversation) -> int | None:
        texts = [message["content"] or "" for message in talk.messages]
        if sum(len(text.encode(errors="replace")) for text in texts) <= most:
            return None  # no more tokens than bytes
        found = tokenizer.encode_batch(texts, add_special_tokens=False)
        tokens = sum(len(each.ids) for each in found)
        return tokens if tokens > most else None

    return count
