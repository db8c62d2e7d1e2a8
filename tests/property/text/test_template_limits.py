"""Templates from anywhere: they end, they stay small, they touch nothing; messages forge nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_runtime.errors import RequestError
from gguf_runtime.text import Template, Tokenizer, limits
from tests.property.text.conftest import bpe_vocab

CHAT = (
    "{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content | trim }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
ENDLESS = [
    "{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% for a in range(99999) recursive %}{{ loop(range(99999)) }}{% endfor %}",
]
HUGE = [
    "{{ 'a' * 10 ** 9 }}",
    "{{ 10 ** 9 * 'a' }}",
    "{{ 9 ** 99999999 }}",
    "{{ '{:{}}'.format(1, 10 ** 10) }}",
    "{{ '{:{w}}'.format(1, w=10 ** 10) }}",
    "{{ '%*d' % (10 ** 10, 1) }}",
    "{{ '%10000000000d' | format(1) }}",
    "{{ ('a' * 10000).join(range(100000) | map('string')) }}",
    "{{ [1] | batch(10 ** 10, 1) | list }}",
    "{{ [1] | slice(10 ** 10) | list }}",
    "{{ ([range(100000) | list] * 10000) | sum(start=[]) }}",
    "{{ ('a ' * 10000) | wordwrap(1, wrapstring='a' * 100000) }}",
    "{{ [[1]] | tojson(indent=10 ** 9) }}",
    "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='aaaaaaaa') %}{% for i in range(60) %}"
    "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{{ 'a'.center(10 ** 10) }}",
    "{{ 'a' | center(10000000000) }}",
    "{{ '%10000000000d' % 1 }}",
    "{{ '{:10000000000}'.format(1) }}",
    "{{ ('a' * 100000).replace('a', 'a' * 100000) }}",
    "{{ ('a' * 100000) | replace('a', 'a' * 100000) }}",
    "{{ range(100000) | join('a' * 100000) }}",
    "{{ ('a\n' * 100000) | indent(100000) }}",
    "{% for i in range(100000) %}{{ 'a' * 10000 }}{% endfor %}",
]
FORBIDDEN = [
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.append(1) }}",
    "{{ ().__class__.__base__.__subclasses__() }}",
    "{{ raise_exception.__globals__ }}",
    "{{ '{0.__class__}'.format('') }}",
    "{% include '/etc/passwd' %}",
    "{{ cycler.__init__.__globals__ }}",
]
TAGS = ["<|turn|>", "</s>", "<s>", "<|tu", "rn|>", "<", ">", "hi", " ", "\n\n", "\ufdd0", "\\ufdd0"]
contents = st.lists(st.sampled_from(TAGS), max_size=6).map("".join)


@pytest.mark.parametrize("source", ENDLESS)
def test_a_template_that_does_not_end_is_stopped(source, monkeypatch):
    monkeypatch.setattr(limits, "MAX_SECONDS", 0.2)

    with pytest.raises(RequestError, match=r"too long|recursion"):
        Template(source).render([])


@pytest.fixture
def little_memory():
    """So that a check that is missing fails here instead of filling the machine."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("source", HUGE)
def test_a_template_that_builds_too_much_is_stopped(source):
    with pytest.raises(RequestError, match=r"builds|pads"):
        Template(source).render([])


@pytest.mark.parametrize("source", FORBIDDEN)
def test_a_template_reaches_nothing_outside(source):
    template = Template(source)
    try:
        text = template.render([{"role": "user", "content": "hi"}])
    except RequestError:
        return
    assert "class" not in text
    assert text == ""


@pytest.mark.parametrize(
    "source", ["{{", "{% if %}", "{% nope %}", "{% break %}", "(" * 9, "{{" + "(" * 999]
)
def test_a_broken_template_is_an_error_that_names_the_template(source):
    if source == "(" * 9:
        assert Template(source).render([]) == source
        return
    with pytest.raises(RequestError) as caught:
        Template(source).render([])
    assert "chat template" in str(caught.value)


def test_the_line_of_an_error_is_named():
    for source in ("a\n\n{% nope %}", "a\n\n{{ missing.x }}"):
        with pytest.raises(RequestError) as caught:
            Template(source).render([])
        assert caught.value.where == "chat template, line 3"


def test_messages_that_are_no_mappings_are_refused():
    with pytest.raises(RequestError, match="no mapping"):
        Template(CHAT).render(["hi"])


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "narrator <s>"]), contents), max_size=4
    )
)
def test_segments_join_to_the_rendering_and_hold_the_templates_own_control_tokens_only(turns):
    tokenizer = Tokenizer(bpe_vocab())
    template = Template(CHAT, "<s>", "</s>")
    messages = [{"role": role, "content": content} for role, content in turns]

    segments = template.segments(messages, tokenizer)
    ids = tokenizer.encode_segments(segments)

    assert "".join(text for text, _ in segments) == template.render(messages)
    control = [tokenizer.piece(i, special=True) for i in ids if tokenizer.is_control(i)]
    assert control == [b"<s>", *[b"<|turn|>", b"</s>"] * len(turns), b"<|turn|>"]
    assert tokenizer.decode(ids, special=True).decode() == template.render(messages)


def test_content_without_control_texts_is_one_segment():
    tokenizer = Tokenizer(bpe_vocab())

    segments = Template(CHAT).segments([{"role": "user", "content": "a > b"}], tokenizer)

    assert segments == [("<|turn|>user\na > b</s><|turn|>assistant\n", True)]


def test_tools_and_parts_are_content_too():
    tokenizer = Tokenizer(bpe_vocab())
    source = "{{ tools | tojson(ensure_ascii=true) }}{{ messages[0].content[0].text }}"
    messages = [{"role": "user", "content": [{"type": "text", "text": "<s>"}]}]

    segments = Template(source).segments(messages, tokenizer, tools=[{"name": "</s>"}])

    assert "".join(text for text, _ in segments) == '[{"name": "</s>"}]<s>'
    assert not set(tokenizer.encode_segments(segments)) & tokenizer.control_ids
