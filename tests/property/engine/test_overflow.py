"""A context that is too small: an error, an end, or turns and tokens that are dropped and counted."""

from __future__ import annotations

import pytest

from gguf_runtime import Model, RequestError
from gguf_runtime.engine.overflow import Trimmer, split
from tests.tiny import QWEN3, with_template

LIMIT = 256
LONG = {"temperature": 2.0, "top_k": 0, "top_p": 1, "min_p": 0, "reuse": False}


def said(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


def turns(n: int) -> list[dict[str, str]]:
    """A system message, n turns of which each takes some thirty tokens, and a last question."""
    past = [
        m
        for k in range(n)
        for m in (said("user", f"question {k:03}"), said("assistant", f"answer {k:03}"))
    ]
    return [said("system", "be brief"), *past, said("user", "the last one")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = with_template(tmp_path_factory.mktemp("overflow") / "m.gguf")
    with Model(path, threads=2, context=LIMIT) as m:
        yield m


def read(m: Model, messages) -> int:
    return len(m.prompter.encode(m.prompter.segments(messages)))


def unending(m: Model, **request):
    """A sampled answer that no end token cuts short."""
    for seed in range(200):
        out = m.complete(max_tokens=-1, seed=seed, **LONG, **request)
        if out.finish_reason != "stop":
            return out
    raise AssertionError("every answer ended by itself")


def test_a_long_conversation_is_refused_with_the_numbers(model):
    n = read(model, turns(20))
    with pytest.raises(RequestError) as e:
        model.complete(messages=turns(20))

    assert e.value.expected == f"at most {LIMIT} tokens"
    assert e.value.got == f"{n:,}, {n - LIMIT:,} too many"


def test_trim_drops_the_oldest_turns_and_keeps_system_first_and_last(model):
    whole = turns(20)
    fewest = next(
        k for k in range(1, 20) if read(model, [*whole[:3], *whole[3 + 2 * k :]]) <= LIMIT * 7 // 8
    )
    kept = [*whole[:3], *whole[3 + 2 * fewest :]]

    out = model.complete(messages=whole, on_overflow="trim", max_tokens=4, temperature=0)

    assert out.ids == model.complete(messages=kept, max_tokens=4, temperature=0).ids
    assert out.usage.prompt == read(model, kept)
    notice = next(n for n in out.notices if n.code == "trimmed")
    assert notice.message.startswith(f"{fewest} of the oldest turns were dropped")
    assert f"{read(model, whole):,} tokens became {read(model, kept):,}" in notice.message


def test_trim_changes_nothing_where_all_fits(model):
    out = model.complete(messages=turns(2), on_overflow="trim", max_tokens=4, temperature=0)

    assert out.ids == model.complete(messages=turns(2), max_tokens=4, temperature=0).ids
    assert not [n for n in out.notices if n.code == "trimmed"]


def test_one_message_that_is_too_long_is_refused_though_trim_is_asked_for(model):
    with pytest.raises(RequestError, match="longer than the context"):
        model.complete("x" * 2 * LIMIT, on_overflow="trim")


def test_trim_keeps_the_end_of_a_raw_text():
    with Model(QWEN3, threads=1, context=64) as m:
        text = "".join(chr(97 + k % 26) for k in range(300))
        ids = m.prompter.plain(text)
        keep = int(ids[0] == m.tokenizer.bos_id)
        out = m.stream(text, raw=True, on_overflow="trim", max_tokens=2)
        list(out)

    n = 64 - 64 // 8
    assert out.prompt_ids == [*ids[:keep], *ids[len(ids) - n + keep :]]
    notice = next(n for n in out.result.notices if n.code == "trimmed")
    assert notice.message.startswith(f"{len(ids) - n:,} tokens of the prompt were dropped")


def test_an_answer_goes_on_behind_a_trimmed_conversation(model):
    past = turns(4)
    stopped = unending(model, messages=past)
    assert stopped.finish_reason == "context"

    out = model.complete(
        messages=past,
        on_overflow="trim",
        max_tokens=len(stopped.ids) + 60,
        seed=stopped.seed,
        **LONG,
    )

    assert out.ids[: len(stopped.ids)] == stopped.ids
    assert len(out.ids) > len(stopped.ids)
    assert out.text == model.detokenize(out.ids)
    assert [n.code for n in out.notices].count("trimmed") >= 1
    assert out.usage.prompt == read(model, past)


def test_what_follows_a_trim_is_what_the_shorter_prompt_gives(model):
    past = turns(4)
    stopped = unending(model, messages=past)
    n = len(stopped.ids)
    out = model.complete(
        messages=past, on_overflow="trim", max_tokens=n + 1, seed=stopped.seed, **LONG
    )
    if len(out.ids) == n:
        assert out.finish_reason == "stop"
        return
    fewest = next(
        k
        for k in range(1, 4)
        if read(model, [*past[:3], *past[3 + 2 * k :]]) + n <= LIMIT - LIMIT // 8
    )
    shorter = model.prompter.encode(model.prompter.segments([*past[:3], *past[3 + 2 * fewest :]]))
    with model.session() as session:
        logits = session.feed([*shorter, *stopped.ids])
    position = len(shorter) + n
    request = model.request(templated=True, seed=stopped.seed, **LONG)
    expected = model.backend.pick(logits, request.sampling, position)
    assert out.ids[n] == expected


def test_nothing_left_to_drop_ends_the_answer(model):
    out = unending(model, messages=[*turns(1)[1:3], said("user", "go on")], on_overflow="trim")

    assert out.finish_reason == "context"
    assert out.usage.prompt + out.usage.generated >= LIMIT


def test_a_full_context_is_an_error_where_that_is_asked_for(model):
    stopped = unending(model, messages=turns(4))
    request = {"messages": turns(4), "max_tokens": -1, "seed": stopped.seed, **LONG}

    stream = model.stream(on_overflow="error", **request)
    with pytest.raises(RequestError, match="full before the answer ended"):
        for _ in stream:
            pass
    [batched] = model.batch([request | {"on_overflow": "error"}])

    assert stream.result.text == stopped.text == batched.text
    assert stream.result.finish_reason == batched.finish_reason == "error"
    assert isinstance(batched.error, RequestError)


def test_batched_answers_are_trimmed_alike(model):
    request = {"messages": turns(4), "on_overflow": "trim", "max_tokens": 220, "seed": 3, **LONG}
    alone = model.complete(**request)

    both = list(model.batch([request, request | {"seed": 4}, request]))

    assert both[0].ids == both[2].ids == alone.ids


def test_a_chat_goes_on_behind_what_it_drops_and_keeps_every_message(model):
    options = {"on_overflow": "trim", "max_tokens": 12, "temperature": 0}
    trimmed = 0
    with model.chat(system="be brief") as chat:
        for k in range(9):
            asked = [*chat.messages, said("user", f"question {k:03}")]
            out = chat.send(f"question {k:03}", **options)

            alone = model.complete(messages=asked, reuse=False, **options)
            assert out.ids == alone.ids
            trimmed += "trimmed" in [n.code for n in out.notices]
        assert len(chat.messages) == 1 + 2 * 9
    assert trimmed >= 2


def test_a_chat_that_trims_while_answering_leaves_no_pages(model):
    stopped = unending(model, messages=turns(4))
    before = model.backend.used_pages
    with model.chat(messages=turns(4)[:-1]) as chat:
        out = chat.send(
            "the last one",
            on_overflow="trim",
            max_tokens=len(stopped.ids) + 20,
            seed=stopped.seed,
            **LONG,
        )
        assert out.ids[: len(stopped.ids)] == stopped.ids
        assert chat.messages[-1]["content"] == out.text
    assert model.backend.used_pages == before


def test_an_unknown_choice_is_refused(model):
    with pytest.raises(RequestError) as e:
        model.complete("hi", on_overflow="shift")

    assert e.value.expected == "stop, error, trim"


def test_turns_begin_with_a_users_message():
    messages = [
        said(r, "") for r in ("system", "developer", "user", "assistant", "tool", "assistant")
    ]
    more = [*messages, said("user", "")]

    assert [len(t) for t in split(more)] == [2, 4, 1]
    assert [len(t) for t in split([said("assistant", ""), said("user", "")])] == [0, 1, 1]
    assert split([]) == [[], []]


def test_a_trimmer_says_how_many_turns_go_each_time():
    whole = turns(20)
    t = Trimmer(list(range(1000)), 400, whole, lambda m: list(range(20 * len(m))))

    assert len(t.fit()) <= 350
    assert len(t.behind(range(200)) or ()) <= 350
    first, second = (int(n.message.split()[0]) for n in t.notices)
    assert first == 13  # 2 + 2 · (20 - 13) + 2 messages of 20 tokens
    assert second == 5
    assert t.behind(range(390)) is None


# ---- loops -------------------------------------------------------------------------------------


def test_an_answer_that_repeats_itself_ends_where_that_is_asked_for(model):
    answers = (model.complete("a", raw=True, seed=k, temperature=0.01) for k in range(50))
    plain = next(a for a in answers if "repeating" in [n.code for n in a.notices])
    stopped = model.complete("a", raw=True, seed=plain.seed, temperature=0.01, stop_on_loop=True)

    assert stopped.finish_reason == "loop"
    assert len(stopped.ids) < len(plain.ids)
    assert plain.ids[: len(stopped.ids)] == stopped.ids
    assert stopped.text == model.detokenize(stopped.ids)
