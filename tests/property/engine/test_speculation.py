"""Guessing ahead changes the time, never the text."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from gguf_runtime import Model
from gguf_runtime.engine import draft
from gguf_runtime.engine.draft import Lookup, Pace

TINY = Path(__file__).parents[2] / "data" / "archs"
NAMES = ["quant-llama-q4_k_m", "gemma3", "mistral-window"]  # the last two with windows of 8


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guess at every chance, whether it pays or not."""
    monkeypatch.setattr(draft, "MARGIN", 0.0)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0, "repeat_penalty": 1.3, "frequency_penalty": 0.2},
        {"temperature": 0.3, "seed": 11},
        {"temperature": 1.0, "seed": 5, "presence_penalty": 0.5, "repeat_last_n": 16},
    ],
    ids=["greedy", "penalties", "cool", "warm"],
)
def test_the_same_tokens_with_and_without(name: str, options: dict[str, float]) -> None:
    prompt = "abc abd abc abd abc abd abc"
    with Model(TINY / f"{name}.gguf", context=256, threads=2) as m:
        for limit in (1, 2, 3, 17, 120):
            plain, ahead = (
                m.complete(prompt, raw=True, max_tokens=limit, speculate=s, **options)
                for s in (False, True)
            )

            assert ahead.ids == plain.ids
            assert ahead.text == plain.text
            assert ahead.finish_reason == plain.finish_reason
            assert plain.usage.drafted == 0
        assert ahead.usage.accepted <= ahead.usage.drafted


@pytest.mark.usefixtures("eager")
def test_greedy_loops_are_guessed() -> None:
    with Model(TINY / "quant-llama-q4_k_m.gguf", context=256, threads=1) as m:
        out = m.complete("ab" * 20, raw=True, max_tokens=150, temperature=0, repeat_penalty=1.0)

    assert out.usage.accepted > 0


@pytest.mark.usefixtures("eager")
def test_a_session_goes_on_from_what_was_kept() -> None:
    with Model(TINY / "mistral-window.gguf", context=256, threads=1) as m:
        ids = m.tokenize("abc abd abc abd")
        request = m.request(templated=False, max_tokens=60, temperature=0)
        session = m.session()
        stream = m.start(session, ids, request, lambda _: None)
        assert stream.result is not None
        for _ in stream:
            pass
        held = list(session.ids)
        logits = session.feed([7])

        fresh = m.session()
        assert (fresh.feed([*held, 7]) == logits).all()
        assert held[: len(ids)] == ids
        answer = stream.result.ids
        assert held[len(ids) :] == answer[: len(held) - len(ids)]


def test_lookup_finds_what_followed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of the places before which most tokens agree, up to eight."""
    monkeypatch.setattr(draft, "CANDIDATES", 1000)
    rng = random.Random(3)
    for _ in range(200):
        ids = [rng.randrange(3) for _ in range(rng.randrange(0, 60))]
        lookup = Lookup(ids)
        monkeypatch.setattr(lookup.pace, "width", lambda right: 3)

        found = lookup.draft(7)

        want: list[int] = []
        for n in range(8, 1, -1):
            places = [k for k in range(n, len(ids)) if ids[k - n : k] == ids[-n:]]
            if len(ids) >= n and places:
                want = ids[places[-1] :][:3]
                break
        assert found == want


def test_as_many_tokens_are_guessed_as_pay() -> None:
    pace = Pace()
    assert pace.width(1.0) == 0  # nothing is known yet of what a step takes
    for _ in range(50):
        pace.took(0, 1.0)
        pace.took(3, 2.0)
        pace.took(7, 3.0)

    assert pace.width(1.0) == 7  # 8 tokens in 3 steps' time
    assert pace.width(0.85) == 7  # 4.8 in 3 against 3.2 in 2
    assert pace.width(0.75) == 3  # 2.7 in 2 against 3.6 in 3
    assert pace.width(0.5) == 0  # 1.9 in 2
    for _ in range(50):
        pace.took(7, 20.0)
    assert pace.width(1.0) == 3


def test_what_was_slow_once_is_tried_again_later() -> None:
    pace = Pace()
    pace.took(0, 1.0)
    for _ in range(20):
        pace.took(3, 9.0)
        pace.took(7, 9.0)
    assert pace.width(0.99) == 0

    for _ in range(20_000):
        pace.took(0, 1.0)

    assert pace.width(0.99) == 7


def test_guesses_that_were_not_verified_teach_too() -> None:
    """After a text of pairs that are followed by anything, pairs alone are no reason to guess."""
    pace, new = Pace(), itertools.count(3)
    lookup = Lookup((), pace)
    pace.took(0, 1.0)
    for _ in range(50):
        pace.took(3, 1.3)
        pace.took(7, 1.6)
    drafted = []
    for _ in range(400):
        for i in (1, 2, next(new)):
            drafted.append(len(lookup.draft(7)))
            lookup.append(i)

    assert sum(drafted[:60]) > 0
    assert sum(drafted[-300:]) == 0
