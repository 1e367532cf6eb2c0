"""Short stories in the manner of TinyStories (Eldan and Li 2023), made by a small grammar.

Each is about a name, an animal and a thing, which an instruction can ask for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _words(
    "Anna Ben Clara David Ella Finn Grace Hugo Ida Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina "
    "Uma Vera Will Yara Zoe"
)
ANIMALS = _words("bear bird cat cow dog duck fish fox frog goat hen horse mouse owl pig rabbit")
THINGS = _words("ball bell boat book box cake cup drum flower hat kite lamp leaf ring shell stone")
MOODS = _words("happy sad brave shy tired kind proud curious")
COLOURS = _words("red blue green yellow white black golden little")
PLACES = (
    "in the garden",
    "in the park",
    "near the river",
    "by the sea",
    "in the woods",
    "on the hill",
    "behind the house",
    "at the farm",
)
PROBLEMS = (
    "the {thing} fell into the water",
    "the {thing} was lost",
    "the {thing} was broken",
    "a big wind took the {thing}",
    "somebody had hidden the {thing}",
    "the {thing} was stuck in a tree",
)
HELP = (
    "The {animal} looked for it all day and found it",
    "The {animal} asked a friend, and they got it back",
    "The {animal} had a good idea and brought it back",
    "They worked together until it was as good as new",
    "{name} was patient, and the {animal} helped",
)
WORDS = (
    '"Do not cry," said the {animal}.',
    '"I can help you," said the {animal}.',
    '"What happened?" asked the {animal}.',
    '"Let us try together," said {name}.',
)
LESSONS = (
    "{name} learned to share",
    "{name} learned to ask for help",
    "{name} learned never to give up",
    "{name} learned that friends are kind",
    "{name} learned to take care of things",
)
ENDS = ("They played until night.", "Then they went home.", "They were friends for ever.")


@dataclass(frozen=True)
class Story:
    """A story, and the words that it is about."""

    text: str
    words: tuple[str, str, str]

    @property
    def instruction(self) -> str:
        """The request that the story answers."""
        name, animal, thing = self.words
        return f"Tell a story about {name}, a {animal} and a {thing}."


def make_stories(seed: int, block: int, count: int) -> Iterator[Story]:
    """Stories of one block, always the same for a seed; few are equal."""
    rng = random.Random(f"{seed} {block}")
    for _ in range(count):
        yield _story(rng)


def _story(rng: random.Random) -> Story:
    words = rng.choice(NAMES), rng.choice(ANIMALS), rng.choice(THINGS)
    name, animal, thing = words
    mood, colour, place = rng.choice(MOODS), rng.choice(COLOURS), rng.choice(PLACES)
    sentences = [
        rng.choice(
            (
                f"Once upon a time there was a {mood} child named {name}.",
                f"One day {name}, a {mood} child, was playing {place}.",
                f"{name} was a {mood} child who liked to play {place}.",
            )
        ),
        rng.choice(
            (
                f"{name} had a {colour} {thing} and a friend, a {animal}.",
                f"There {name} met a {animal} with a {colour} {thing}.",
                f"{name} and a {animal} found a {colour} {thing} {place}.",
            )
        ),
        f"But {rng.choice(PROBLEMS)}.",
    ]
    sentences += [rng.choice(WORDS)] if rng.random() < 0.6 else []
    sentences += [f"{rng.choice(HELP)}.", f"{rng.choice(LESSONS)}.", rng.choice(ENDS)]
    text = " ".join(sentences).format(name=name, animal=animal, thing=thing)
    return Story(text, words)
