"""Laws of the sampler: what always stays, what never comes, what a seed promises."""

import numpy as np
import pytest

from gguf_runtime.errors import RequestError
from gguf_runtime.kernels.sample_bits import philox, uniform
from gguf_runtime.sampling import Sampling

LOGITS = np.random.default_rng(0).normal(0, 3, 500).astype(np.float32)


def test_philox_gives_the_published_answers():
    # kat_vectors of Random123 (Salmon et al.), philox 4x32, 10 rounds
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    ones = 0xFFFFFFFF
    assert philox((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    counter = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    want = (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)
    assert philox(counter, (0xA4093822, 0x299F31D0)) == want


def test_uniform_depends_on_seed_sample_and_position():
    places = [(s, i, p) for s in range(3) for i in range(3) for p in range(3)]
    values = [uniform(*place) for place in places]
    assert len(set(values)) == 27
    assert all(0 <= u < 1 for u in values)
    many = [uniform(1, 0, p) for p in range(4000)]
    assert abs(np.mean(many) - 0.5) < 0.02


def test_temperature_zero_is_the_argmax_of_the_raw_logits():
    greedy = Sampling(temperature=0, recommended={"repeat_penalty": 1.5, "presence_penalty": 2.0})
    best = int(np.argmax(LOGITS))
    for _ in range(5):
        assert greedy.draw(LOGITS) == best
        greedy.accept(best)


def test_temperature_zero_keeps_penalties_that_were_asked_for():
    greedy = Sampling(temperature=0, presence_penalty=100)
    best, second = np.argsort(-LOGITS)[:2]
    assert greedy.draw(LOGITS) == best
    greedy.accept(int(best))
    assert greedy.draw(LOGITS) == second


def test_ties_go_to_the_lower_id():
    tied = np.zeros(50, np.float32)
    assert Sampling(temperature=0).draw(tied) == 0
    ids, _ = Sampling(temperature=1, top_k=3, top_p=1, min_p=0).candidates(tied)
    assert ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "extreme",
    [{"top_k": 1}, {"top_p": 0}, {"min_p": 1}, {"top_p": 0, "top_k": 0}, {"temperature": 1e-30}],
)
def test_at_least_one_candidate_always_stays(extreme):
    ids, _ = Sampling(**extreme).candidates(LOGITS)
    assert len(ids) >= 1
    assert Sampling(**extreme, seed=1).draw(LOGITS) == int(np.argmax(LOGITS))


def test_neutral_values_keep_everything():
    every = Sampling(temperature=1, top_k=0, top_p=1, min_p=0)
    ids, logits = every.candidates(LOGITS)
    assert ids.tolist() == list(range(500))
    assert np.array_equal(logits, LOGITS)
    assert np.array_equal(
        Sampling(temperature=1, top_k=-1, top_p=1, min_p=0).candidates(LOGITS)[0], ids
    )


@pytest.mark.parametrize("chain", [{}, {"top_k": 0, "top_p": 1, "min_p": 0, "temperature": 50}])
def test_forbidden_tokens_are_never_drawn(chain):
    x = LOGITS.copy()
    x[::2] = -np.inf
    sampling = Sampling(**chain)
    for u in [0.0, 1 - 2.0**-53, *np.random.default_rng(1).random(300)]:
        assert sampling.draw(x, u) % 2 == 1


def test_draws_follow_the_probabilities():
    x = np.log(np.float32([0.5, 0.25, 0.125, 0.125]))
    sampling = Sampling(temperature=1, top_k=0, top_p=1, min_p=0)
    drawn = [sampling.draw(x, (i + 0.5) / 1000) for i in range(1000)]
    assert np.bincount(drawn).tolist() == [500, 250, 125, 125]


def test_the_same_seed_gives_the_same_ids():
    def run(seed):
        s = Sampling(seed=seed, temperature=2.0)
        out = []
        for _ in range(20):
            out.append(s.draw(LOGITS))
            s.accept(out[-1])
        return out

    assert run(5) == run(5)
    assert run(5) != run(6)
    assert 0 <= Sampling().seed < 2**32


def test_only_the_last_tokens_are_penalized():
    s = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, presence_penalty=1.0, repeat_last_n=2)
    _, x = s.candidates(LOGITS, [3, 4, 5])
    changed = np.flatnonzero(x != LOGITS)
    assert changed.tolist() == [4, 5]
    for id in (3, 4, 5):
        s.accept(id)
    assert sorted(s._seen()[0].tolist()) == [4, 5]


def test_lately_can_be_everything_or_nothing():
    history = [3, *[4] * 200]
    for n, penalized in ((1000, [3, 4]), (0, []), (-1, [])):
        s = Sampling(
            temperature=1, top_k=0, top_p=1, min_p=0, presence_penalty=1.0, repeat_last_n=n
        )
        _, x = s.candidates(LOGITS, history)
        for id in history:
            s.accept(id)

        assert np.flatnonzero(x != LOGITS).tolist() == penalized
        assert sorted(s._seen()[0].tolist()) == penalized


def test_a_penalty_multiplies_once_whatever_the_count_and_pushes_negative_logits_down():
    x = np.float32([2.0, -2.0, 0.0])
    s = Sampling(temperature=1, top_k=0, top_p=1, min_p=0, repeat_penalty=2.0)
    _, got = s.candidates(x, [0, 0, 0, 1, 1])
    assert got.tolist() == [1.0, -4.0, 0.0]


def test_a_copy_goes_its_own_way():
    a = Sampling(seed=1, presence_penalty=5.0)
    a.accept(1)
    b = a.copy()
    b.accept(2)
    assert a.accepted == 1
    assert a._seen()[0].tolist() == [1]
    assert sorted(b._seen()[0].tolist()) == [1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"temperature": "hot"},
        {"top_k": 1.5},
        {"top_k": -2},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"repeat_penalty": 0},
        {"presence_penalty": float("inf")},
        {"repeat_last_n": -2},
        {"seed": 2**32},
        {"seed": True},
    ],
)
def test_values_out_of_range_are_refused_with_the_range(wrong):
    with pytest.raises(RequestError) as caught:
        Sampling(**wrong)
    assert next(iter(wrong)) in str(caught.value)
    assert "expected a " in str(caught.value)


@pytest.mark.parametrize(
    "logits", [[1.0, np.nan], [np.inf, 0.0], [-np.inf, -np.inf], [], [[1.0, 2.0]]]
)
def test_logits_that_no_token_can_be_chosen_from_are_an_error(logits):
    with pytest.raises(RequestError):
        Sampling().draw(logits)


def test_aiming_at_unlikely_tokens_never_takes_a_forbidden_one():
    x = np.full(50, -np.inf, np.float32)
    x[[3, 4]] = 5.0, 1.0
    s = Sampling(adaptive_target=0.0, top_k=0, min_p=0, top_p=1, temperature=1, seed=1)

    for _ in range(300):
        token = s.draw(x)
        assert token in (3, 4)
        s.accept(token)


def test_a_forbidden_token_never_comes():
    x = np.zeros(50, np.float32)
    s = Sampling(logit_bias={7: -np.inf, 8: 3.0}, top_k=0, min_p=0, top_p=1, temperature=1, seed=1)

    drawn = []
    for _ in range(3000):
        drawn.append(s.draw(x))
        s.accept(drawn[-1])

    assert 7 not in drawn
    assert drawn.count(8) > 600


@pytest.mark.parametrize("how", [{}, {"temperature": 0}, {"mirostat": 2}], ids=str)
@pytest.mark.parametrize(
    ("bias", "message"),
    [
        ({1: -np.inf, 2: -np.inf}, "no token is allowed"),
        ({1: -1e300, 2: -np.inf}, "no token is allowed"),
        ({1: 1e300}, "too large"),
    ],
)
def test_biases_that_leave_no_token_are_an_error_of_the_request(how, bias, message):
    x = np.array([-np.inf, 1, 2, -np.inf], np.float32)  # as a constraint leaves it

    with pytest.raises(RequestError, match=message):
        Sampling(logit_bias=bias, **how).draw(x)


def test_a_bias_that_a_low_temperature_makes_infinite_is_an_error_of_the_request():
    with pytest.raises(RequestError, match="too large"):
        Sampling(logit_bias={1: 3e38}, temperature=0.5).draw([1, 2])


@pytest.mark.parametrize(
    "wrong",
    [
        {"mirostat": 3},
        {"typical_p": 2},
        {"samplers": "top_k;nothing"},
        {"samplers": ["top_k", "top_k"]},
        {"logit_bias": {1: float("nan")}},
        {"logit_bias": "1"},
        {"dry_breakers": "a"},
        {"xtc_probability": float("nan")},
        {"no_such": 1},
    ],
)
def test_wrong_parameters_of_the_other_samplers_are_refused(wrong):
    with pytest.raises(RequestError):
        Sampling(**wrong)
