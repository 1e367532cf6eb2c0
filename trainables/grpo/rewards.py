"""Rewards of completions: functions by name, or of a user's script, and reward models."""

from __future__ import annotations

import ast
import inspect
import math
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from search_spaces.errors import UserError, suggest
from trainables.data.conversations.rows import Conversation
from trainables.grpo.sandbox import passes
from trainables.user_code import loader

if TYPE_CHECKING:
    from trainables.classifier.scorer import RewardModel


PASSED = ("question", "answer", "completion")
"""Keywords of a user's function."""


class RewardConfig(BaseModel):
    """One of the rewards that are added up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    weight: float = Field(1.0, allow_inf_nan=False, description="factor of the reward in the sum")
    pattern: str | None = Field(
        None,
        description="regular expression. format: what is to be found in a completion; others:"
        " the first group of its first match is judged in place of the completion",
    )
    path: str | None = Field(
        None,
        description="folder or hub id of a reward model (a checkpoint, a trial, a soup or an export"
        " of trainable: classifier with task: reward), which scores the conversation with the"
        " completion; the text alone in place of a mapping means this key",
    )
    most: int = Field(200, gt=0, description="length: characters up to which the reward is 1")
    timeout_s: float = Field(2.0, gt=0, description="tests: seconds of one completion's run")
    memory_mib: int = Field(512, ge=64, description="tests: largest memory of a run, MiB")

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, given: Any) -> Any:
        return {"path": given} if isinstance(given, str) else given


@dataclass(frozen=True)
class Completion:
    """A completion to judge, the row that it answers, and the messages before it."""

    question: str
    answer: str
    completion: str
    messages: tuple[dict[str, Any], ...] = ()
    tools: list[dict[str, Any]] | None = None


def exact(sample: Completion, config: RewardConfig) -> float:
    """1 if the completion is the expected answer, without spaces around both."""
    return float(sample.completion.strip() == sample.answer.strip())


def equation(sample: Completion, config: RewardConfig) -> float:
    """1 if it is an expression with the expected one's numbers, each once, and of its value."""
    try:
        given, expected = (_evaluated(text) for text in (sample.completion, sample.answer))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return 0.0
    return float(given[1] == expected[1] and math.isclose(given[0], expected[0], abs_tol=1e-6))


def words(sample: Completion, config: RewardConfig) -> float:
    """Share of the answer's words that the completion has."""
    asked, has = re.findall(r"\w+", sample.answer), set(re.findall(r"\w+", sample.completion))
    return sum(word in has for word in asked) / max(1, len(asked))


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _evaluated(text: str) -> tuple[float, list[float]]:
    """Value of an expression, and its numbers in order."""
    numbers: list[float] = []

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            numbers.append(float(str(node.value)))
            return numbers[-1]
        raise ValueError("not an expression of numbers")

    return value(ast.parse(text.strip()[:500], mode="eval").body), sorted(numbers)


def matches_format(sample: Completion, config: RewardConfig) -> float:
    """1 if `pattern` is found in the completion."""
    return float(re.search(config.pattern or "", sample.completion, re.DOTALL) is not None)


def length(sample: Completion, config: RewardConfig) -> float:
    """1 up to `most` characters, then falling to 0 at twice as many."""
    return min(1.0, max(0.0, 2 - len(sample.completion) / config.most))


def parses(sample: Completion, config: RewardConfig) -> float:
    """1 if the completion is Python and not empty."""
    try:
        return float(bool(ast.parse(sample.completion).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0


def tests(sample: Completion, config: RewardConfig) -> float:
    """1 if the completion, followed by the tests in the answer, runs without an exception."""
    code = f"{sample.completion}\n{sample.answer}\n"
    return float(passes(code, config.timeout_s, config.memory_mib))


REWARDS: dict[str, Callable[[Completion, RewardConfig], float]] = {
    "exact": exact,
    "equation": equation,
    "words": words,
    "format": matches_format,
    "length": length,
    "parses": parses,
    "tests": tests,
}
"""Name in a sweep file → function. A new reward is one line here."""


def problem_of(name: str, config: RewardConfig) -> str | None:
    """Why a reward cannot be used, if so."""
    if config.pattern is not None:
        try:
            groups = re.compile(config.pattern).groups
        except re.error as e:
            return f"pattern is not a regular expression ({e}), got {config.pattern!r}"
        if not groups and name != "format":
            return (
                f"pattern has no group, for example <answer>(.*)</answer>, got {config.pattern!r}"
            )
    if name == "format" and config.pattern is None:
        return "needs a pattern, for example <answer>.*</answer>"
    if config.path is not None:
        return f"{name} takes no path; use another name" if name in REWARDS else None
    if name not in REWARDS and ":" not in name:
        return (
            f"unknown reward{suggest(name, REWARDS)} (one of {', '.join(REWARDS)}); your own"
            " function is path/to/script.py:function, a reward model has a path"
        )
    return None


def call_problem(name: str) -> str | None:
    """Why a user's function cannot be called with the keywords `PASSED`, if so."""
    _, function = loader.function(name)
    if function is None or function.decorator_list:
        return None
    takes, first = function.args, len(function.args.args) - len(function.args.defaults)
    names = {a.arg for a in (*takes.args, *takes.kwonlyargs)}
    pairs = zip(takes.kwonlyargs, takes.kw_defaults, strict=True)
    needed = {a.arg for a in (*takes.args[:first], *(a for a, d in pairs if d is None))}
    whole = takes.kwarg is not None or names >= set(PASSED)
    if whole and needed <= set(PASSED) and not takes.posonlyargs:
        return None
    return f"is called with the keywords {', '.join(PASSED)}, got ({ast.unparse(takes)})"


def short_name(name: str) -> str:
    """Of a reward in names of metrics."""
    return name.rpartition(":")[2]


def rewards_of(
    samples: Sequence[Completion],
    rewards: dict[str, RewardConfig],
    models: Mapping[str, RewardModel] | None = None,
) -> dict[str, list[float]]:
    """Each reward of each sample, without its weight.

    A user's function is called with the keywords question, answer and completion (texts).

    Args:
        samples: the completions.
        rewards: by name.
        models: of the rewards that have a path.

    Raises:
        UserError: a user's function is not there, or returns no finite number.
    """
    known = models or {}
    return {n: _each(n, config, samples, known.get(n)) for n, config in rewards.items()}


def _each(
    name: str, config: RewardConfig, samples: Sequence[Completion], model: RewardModel | None
) -> list[float]:
    if name != "format" and config.pattern is not None:
        samples = [_cut(sample, config.pattern) for sample in samples]
    if name == "tests":
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(lambda sample: tests(sample, config), samples))
    if name in REWARDS:
        return [REWARDS[name](sample, config) for sample in samples]
    if model is not None:
        return model.scores([_conversation(sample) for sample in samples])
    judge = loader.load(name)
    try:
        inspect.signature(judge).bind(**dict.fromkeys(PASSED))
    except (TypeError, ValueError) as e:
        raise UserError(f"reward {name}: is called with {', '.join(PASSED)}: {e}") from e
    return [_checked(name, judge(**{key: getattr(s, key) for key in PASSED})) for s in samples]


def _conversation(sample: Completion) -> Conversation:
    said = {"role": "assistant", "content": sample.completion}
    return Conversation("a completion", (*sample.messages, said), "", sample.tools)


def _cut(sample: Completion, pattern: str) -> Completion:
    found = re.search(pattern, sample.completion, re.DOTALL)
    text = (found.group(1) or "") if found else ""
    return replace(sample, completion=text)


def _checked(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"reward {name}: must return a finite number, got {value!r}")
    return number
