"""Answers under constraints: whole at any number of tokens, like texts without, and free of side effects."""

import enum
import json
import random
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

import jsonschema
import pydantic
import pytest

from gguf_runtime.errors import RequestError
from gguf_runtime.text import Constraint

PROMPT = "Tell me"
SCHEMAS, SEEDS = 50, 50


def of_kind(rng, depth):
    """A random schema that can be enforced."""
    kind = rng.choice(
        ["string", "integer", "number", "boolean", "null", "enum", "array", "object", "any"]
        if depth
        else ["string", "integer", "boolean", "enum"]
    )
    if kind == "enum":
        return {"enum": rng.sample(["a", "bcd", 1, 2.5, None, "x y", True], 3)}
    if kind == "any":
        return {"anyOf": [of_kind(rng, depth - 1), of_kind(rng, depth - 1)]}
    if kind == "array":
        low = rng.randint(0, 2)
        found = {"type": "array", "items": of_kind(rng, depth - 1), "minItems": low}
        return found | ({"maxItems": low + 2} if rng.random() < 0.5 else {})
    if kind == "object":
        names = rng.sample(["name", "age", "tags", "é", "a b"], rng.randint(1, 3))
        return {
            "type": "object",
            "properties": {n: of_kind(rng, depth - 1) for n in names},
            "required": [n for n in names if rng.random() < 0.7],
            "additionalProperties": False,
        }
    if kind == "string":
        return rng.choice(
            [
                {"type": "string"},
                {"type": "string", "minLength": 2, "maxLength": 5},
                {"type": "string", "pattern": "^[a-c]{2,3}-[0-9]$"},
                {"type": "string", "format": "date"},
            ]
        )
    if kind == "integer":
        return rng.choice([{"type": "integer"}, {"type": "integer", "minimum": 7, "maximum": 120}])
    return {"type": kind}


def least(model, schema):
    """The tokens that the refusal of too few says are needed."""
    with pytest.raises(RequestError, match="cannot be whole") as e:
        model.complete(
            PROMPT,
            max_tokens=1,
            schema={"type": "array", "prefixItems": [schema], "minItems": 1, "items": False},
        )
    return int(e.value.expected.split(",")[0].split()[-1])


@pytest.mark.parametrize("seed", range(SCHEMAS))
def test_an_answer_is_valid_at_every_length_that_can_hold_one(small, seed):
    rng = random.Random(seed)
    inner = of_kind(rng, 2)
    schema = {"type": "array", "prefixItems": [inner], "minItems": 1, "items": False}
    n = least(small, inner)
    for tokens in (n, n + 1, 2 * n):
        out = small.complete(PROMPT, max_tokens=tokens, schema=schema, temperature=1.5, seed=seed)
        assert out.usage.generated <= tokens
        jsonschema.validate(json.loads(out.text), schema)
        assert out.object == json.loads(out.text)


def test_random_answers_satisfy_their_schema(small):
    for seed in range(SEEDS):
        schema = {"type": "object", "properties": {"x": of_kind(random.Random(seed + 1000), 3)}}
        out = small.complete(PROMPT, max_tokens=200, schema=schema, temperature=2.0, seed=seed)
        jsonschema.validate(json.loads(out.text), schema)


def test_choices_expressions_and_grammars_hold(small):
    choices = ["yes", "yes please", "no"]
    for seed in range(10):
        asked = {"max_tokens": 40, "temperature": 2.0, "seed": seed}
        assert small.complete(PROMPT, choices=choices, **asked).text in choices
        regex = r"[0-9]{3}-[a-f]+\."
        assert Constraint.from_regex(regex).accepts(
            small.complete(PROMPT, regex=regex, **asked).text
        )
        grammar = 'root ::= "(" root ")" | [a-z]+ "\\n"'
        assert Constraint.from_gbnf(grammar).accepts(
            small.complete(PROMPT, grammar=grammar, **asked).text
        )


def test_a_constraint_that_allows_everything_changes_nothing(small):
    for seed in range(3):
        asked = {"max_tokens": 24, "temperature": 1.0, "seed": seed, "speculate": False}
        free = small.complete(PROMPT, **asked)
        # No whole UTF-8 text is forbidden; the tiny model also writes halves of characters.
        held = small.complete(PROMPT, grammar="root ::= .*", **asked)
        for k, (a, b) in enumerate(zip(free.ids, held.ids, strict=False)):
            if a != b:
                before = small.tokenizer.decode(free.ids[:k])
                piece = small.tokenizer.piece(a, special=True)
                assert a in small.tokenizer.control_ids or not is_utf8(before + piece)
                break


def is_utf8(data):
    try:
        data.decode()
    except UnicodeDecodeError as e:
        return e.reason == "unexpected end of data"
    return True


def test_forced_text_is_taken_without_a_pass_for_each_token(small):
    words = "the only answer that is allowed here, word for word"

    out = small.complete(PROMPT, choices=[words], max_tokens=-1)

    assert out.text == words
    assert out.timings.decode_tps is None or out.usage.generated > 1


def test_neighbours_do_not_change_a_constrained_answer(small):
    asked = [
        {"prompt": f"{PROMPT} {k}", "max_tokens": 30, "seed": k, "temperature": 1.0}
        for k in range(6)
    ]
    for k, a in enumerate(asked):
        if k % 2:
            a["schema"] = {"type": "object", "properties": {"n": {"type": "integer"}}}

    together = list(small.batch(asked))

    alone = [small.complete(**a) for a in asked]
    assert [o.text for o in together] == [o.text for o in alone]
    assert [o.object for o in together] == [o.object for o in alone]


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Person:
    name: str
    age: Annotated[int, {"minimum": 0, "maximum": 99}]
    color: Color
    tags: list[str]
    boss: "Person | None" = None


class Place(TypedDict):
    kind: Literal["town", "river"]
    at: tuple[float, float]


class Book(pydantic.BaseModel):
    title: str
    year: int = pydantic.Field(ge=1000, le=2100)


def test_python_types_come_back_as_their_objects(small):
    asked = {"max_tokens": 120, "temperature": 1.0, "seed": 3}
    person = small.complete(PROMPT, schema=Person, **asked).object
    place = small.complete(PROMPT, schema=Place, **asked).object
    book = small.complete(PROMPT, schema=Book, **asked).object
    flags = small.complete(PROMPT, schema=list[bool], **asked).object

    assert isinstance(person, Person)
    assert isinstance(person.color, Color)
    assert 0 <= person.age <= 99
    assert place["kind"] in ("town", "river")
    assert isinstance(place["at"], tuple)
    assert isinstance(book, Book)
    assert 1000 <= book.year <= 2100
    assert all(isinstance(f, bool) for f in flags)


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"schema": {"uniqueItems": True}}, "uniqueItems"),
        ({"schema": {"properties": {"a": {"if": {}}}}}, "/properties/a"),
        ({"schema": {"type": "object", "propertys": {}}}, "did you mean properties"),
        ({"schema": "{"}, "not JSON"),
        ({"schema": {"allOf": [{"type": "string"}, {"type": "null"}]}}, "no JSON text"),
        (
            {"schema": {"required": ["a"], "properties": {"a": {"$ref": "#"}}, "type": "object"}},
            "ends",
        ),
        ({"schema": complex}, "no JSON schema for"),
        ({"regex": "(?=a)a"}, "look-around"),
        ({"grammar": "root ::= root"}, "begin with itself"),
        ({"choices": []}, "at least one"),
        ({"choices": "yes"}, "list of texts"),
        ({"regex": "a", "choices": ["a"]}, "exclude each other"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(small, asked, match):
    with pytest.raises(RequestError) as e:
        small.complete(PROMPT, max_tokens=9, **asked)
    assert match in str(e.value)


def test_large_bounds_and_deep_schemas_are_ready_at_once():
    deep = {"type": "string"}
    for _ in range(50):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    for schema in (
        {"type": "string", "maxLength": 10**6},
        {
            "anyOf": [
                {"type": "object", "properties": {f"t{k}": {"type": "string"}}} for k in range(64)
            ]
        },
        deep,
    ):
        assert Constraint.from_schema(schema).shortest


def test_deep_grammars_and_deep_texts_do_not_overflow():
    depth = 10_000
    grammar = Constraint.from_gbnf("root ::= " + "(" * depth + '"a"' + ")" * depth)
    stars = Constraint.from_gbnf("root ::= " + "(" * depth + '"a"' + ")*" * depth)
    nested = Constraint.from_gbnf('root ::= "[" root "]" | "x"')

    assert grammar.accepts("a")
    assert stars.accepts("a" * 100)
    with pytest.raises(RequestError, match="too deep"):
        Constraint.from_gbnf("root ::= " + '("a" ' * depth + '"b"' + ")" * depth)
    assert nested.accepts("[" * depth + "x" + "]" * depth)
    assert not nested.accepts("[" * depth + "x" + "]" * (depth - 1))


def test_ambiguous_grammars_stay_small():
    for grammar in ('root ::= ("a"? "a"? "a"? "a"? "a"?)*', 'root ::= (("a"*)*)* "b"?'):
        constraint = Constraint.from_gbnf(grammar)
        assert constraint.accepts("a" * 5000)
        assert not constraint.can_continue("a" * 5000 + "c")
