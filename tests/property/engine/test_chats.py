"""Conversations: each turn reads what is new, and an interrupted one stays."""

import sys
from itertools import count

import pytest

from gguf_runtime import Model, RequestError
from gguf_runtime.engine import chat as chat_module
from gguf_runtime.engine import stream as stream_module
from tests.tiny import with_template

ASK = {"max_tokens": 12, "seed": 3, "temperature": 1.0}


def rendered(messages):
    text = "".join(f"<bos>{m['role']}: {m['content']}<eos>" for m in messages)
    return text + "<bos>assistant: "


def held(out):
    """Tokens that the cache holds after a turn: the last one of an answer that was cut is not read."""
    return out.usage.prompt + len(out.ids) - (out.finish_reason == "length")


def test_a_turn_reads_only_what_is_new(talker, counted):
    counts = counted(talker)
    talker.backend.forget()
    with talker.chat(system="Be brief.") as chat:
        known = 0
        for text in ("Hello", "And now?", "Thanks"):
            counts.clear()
            out = chat.send(text, speculate=False, **ASK)

            assert out.usage.cached == known
            assert sum(counts) == held(out) - known
            known = held(out)
        assert [m["role"] for m in chat.messages] == ["system", *["user", "assistant"] * 3]


def test_a_first_turn_is_what_complete_gives_for_the_same_messages(talker):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    with talker.chat(system="Be brief.") as chat:
        assert chat.send("Hello", **ASK).ids == talker.complete(messages=messages, **ASK).ids
    alone = talker.complete("Hello", **ASK)
    with talker.chat() as chat:
        assert chat.send("Hello", **ASK).ids == alone.ids


def test_a_later_turn_is_what_a_fresh_session_gives_for_the_same_ids(talker):
    with talker.chat() as chat:
        chat.send("Hello", **ASK)
        out = chat.send("And now?", **ASK | {"max_tokens": 8})
        whole = chat._read[: out.usage.prompt]
        fresh = replied(talker, whole, **ASK | {"max_tokens": 8})
        greedy = chat.send("More", temperature=0, max_tokens=1)
        whole = chat._read[: greedy.usage.prompt]
        with talker.session() as s:
            assert int(s.feed(whole).argmax()) == greedy.ids[0]
    assert out.ids == fresh


def replied(m, ids, **options):
    """The answer to ids, read whole by a session of its own."""
    with m.session() as s:
        stream = m.start(s, ids, m.request(templated=True, **options), lambda _: None)
        for _ in stream:
            pass
        return stream.result.ids


def test_content_never_becomes_a_control_token(talker):
    plain = talker.prompter.ids("x", None, raw=False, bos=True, special=False).ids
    sly = talker.prompter.ids("<eos><bos>x", None, raw=False, bos=True, special=False).ids

    assert [i for i in sly if i < 4] == [i for i in plain if i < 4]


@pytest.mark.parametrize("way", ["close", "break", "interrupt", "time"])
def test_an_interrupted_turn_stays_with_what_it_said(talker, way):
    talker.backend.forget()
    with talker.chat() as chat:
        if way == "time":
            stream = chat.stream("Hello", temperature=0, max_time=0.05, max_tokens=-1)
            said = "".join(stream)
        else:
            stream = chat.stream("Hello", **ASK | {"max_tokens": 200})
            said = next(stream)
        if way == "close":
            stream.close()
        elif way == "interrupt":
            pick = talker.backend.pick
            try:
                talker.backend.pick = interrupting
                with pytest.raises(KeyboardInterrupt):
                    next(stream)
            finally:
                talker.backend.pick = pick
        known = stream.result.usage.prompt + len(stream.result.ids)
        stream = None

        assert [m["role"] for m in chat.messages] == ["user", "assistant"]
        assert chat.messages[1]["content"] == said
        out = chat.send("Go on", **ASK)
        assert known - 1 <= out.usage.cached <= known  # the last token may not have been read
        assert len(chat.messages) == 4


def interrupting(*args):
    raise KeyboardInterrupt


def test_a_turn_that_was_not_read_is_no_part_of_the_conversation(talker):
    with talker.chat() as chat:
        out = chat.send("Hello " * 200, max_time=1e-9)

        assert out.finish_reason == "time"
        assert chat.messages == []
        chat.stream("Hello").close()
        assert chat.messages == []
        assert chat.send("Hello", **ASK).ids == talker.complete("Hello", **ASK).ids


def test_a_refused_turn_is_no_part_of_the_conversation(tmp_path):
    with Model(with_template(tmp_path / "m.gguf"), threads=1, context=100) as m, m.chat() as chat:
        first = chat.send("Hello", **ASK)
        messages = [dict(x) for x in chat.messages]
        for text, options in (
            ("x" * 100, {}),
            ("Hi", {"temperature": -1}),
            (5, {}),
            ("Hi", {"x": 1}),
        ):
            with pytest.raises(RequestError):
                chat.send(text, **options)
            assert chat.messages == messages
        out = chat.send("Hi", **ASK)
        assert out.usage.cached == held(first)


def test_a_stop_string_ends_a_turn_and_the_next_one_goes_on(talker):
    with talker.chat() as chat:
        whole = talker.complete("Hello", **ASK).text
        out = chat.send("Hello", stop=whole[3:5], **ASK)

        assert out.text == whole[:3]
        assert chat.messages[-1]["content"] == whole[:3]
        again = chat.send("And now?", **ASK)
        assert 0 < again.usage.cached < again.usage.prompt
        expected = talker.complete(messages=chat.messages[:3], **ASK)
        assert again.ids == expected.ids


def test_a_conversation_begun_elsewhere_goes_on(talker):
    past = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}]
    with talker.chat(system="Be brief.", messages=past) as chat:
        out = chat.send("And now?", **ASK)

    messages = [{"role": "system", "content": "Be brief."}, *past]
    messages.append({"role": "user", "content": "And now?"})
    assert out.ids == talker.complete(messages=messages, **ASK).ids
    assert len(past) == 2


def test_forks_go_on_from_the_same_past(talker, pages):
    before = pages(talker)
    with talker.chat() as chat:
        first = chat.send("Hello", **ASK)
        with chat.fork() as twin:
            a = chat.send("Left", **ASK)
            b = twin.send("Left", **ASK)
            c = twin.send("Right", **ASK)

            assert a.ids == b.ids
            assert a.usage.cached == held(first)
            assert b.usage.cached == b.usage.prompt - 1  # the twin has asked the same
            assert len(chat.messages) == 4
            assert len(twin.messages) == 6
            assert c.usage.cached > b.usage.cached
    assert pages(talker) == before


def test_a_new_turn_ends_the_one_before(talker):
    with talker.chat() as chat:
        first = chat.stream("Hello", **ASK | {"max_tokens": 300})
        said = next(first)
        out = chat.send("And now?", **ASK)

        assert list(first) == []
        assert first.result.finish_reason == "interrupted"
        assert [m["role"] for m in chat.messages] == ["user", "assistant"] * 2
        assert chat.messages[1]["content"] == said
        assert out.usage.cached > 0


@pytest.fixture
def strike():
    """Calls something and raises KeyboardInterrupt at the n-th line of chats and streams."""
    files = (chat_module.__file__, stream_module.__file__)
    left = 0

    def line(frame, event, arg):
        nonlocal left
        left -= event == "line"
        if event == "line" and left == 0:
            raise KeyboardInterrupt
        return line

    def run(n, call):
        nonlocal left
        left, before = n, sys.gettrace()
        sys.settrace(lambda frame, *_: line if frame.f_code.co_filename in files else None)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return left <= 0

    return run


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a finalizer
def test_ctrl_c_at_any_line_leaves_whole_turns(talker, strike):
    ask = {"max_tokens": 2, "temperature": 0}
    for n in count(1):
        chat = talker.chat(system="Be brief.")
        chat.send("Hello", **ask)
        struck = strike(n, lambda chat=chat: chat.send("And now?", **ask))
        fork = chat.fork()

        fresh = fork.send("Thanks", reuse=False, speculate=False, **ask)
        assert chat.send("Thanks", **ask).ids == fresh.ids
        roles = [m["role"] for m in chat.messages]
        assert roles in (["system", *["user", "assistant"] * k] for k in (2, 3)), n
        assert struck or len(roles) == 7
        if not struck:
            break
    assert n > 50
