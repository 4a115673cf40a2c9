"""`tacit.ckks`: arithmetic on encrypted slots, against numpy."""

import numpy as np
import pytest

from tacit import TacitError, ckks

SMALL = {
    "log_degree": 13,
    "base_bits": 45,
    "segments": [{"count": 3, "bits": 34}],
    "special_bits": 50,
    "groups": [{"up_to_level": 4, "alpha": 1}],
    "encapsulated": False,
}
SLOTS = 64


@pytest.fixture(scope="module")
def context():
    return ckks.Context(SMALL)


@pytest.fixture(scope="module")
def secret(context):
    return context.secret()


@pytest.fixture(scope="module")
def keys(context, secret):
    rotation = context.rotation_key(5, 4, slots=SLOTS)
    return secret.keys(rotation, context.conjugation_key(4), context.relinearisation_keys(4))


@pytest.fixture
def x():
    rng = np.random.default_rng(1)
    return rng.uniform(-1, 1, SLOTS) + 1j * rng.uniform(-1, 1, SLOTS)


def distance(secret, ciphertext, want):
    return np.abs(secret.decrypt(ciphertext) - want).max()


def test_parameters_have_128_bits(context):
    assert (context.degree, context.slots, context.levels) == (8192, 4096, 4)
    assert context.security and all(check.modulus_bits <= check.most_bits for check in context.security)
    with pytest.raises(TacitError, match="250.0 bits at degree 8192"):
        ckks.Context({**SMALL, "base_bits": 50, "segments": [{"count": 3, "bits": 50}]})
    with pytest.raises(TacitError, match="A, B and C"):
        ckks.Context("Z")
    with pytest.raises(TacitError, match="missing field"):
        ckks.Context({"log_degree": 13})


def test_arithmetic_is_that_of_numpy(context, secret, keys, x):
    a = secret.encrypt(x, level=4)
    b = context.read(secret.encrypt_to_bytes(x[::-1], level=4), magnitude=0.8)
    assert (a.level, a.slots) == (4, SLOTS) and a.precision_bits > 15
    assert distance(secret, a, x) < 1e-5
    assert distance(secret, keys.add(a, b), x + x[::-1]) < 1e-5
    assert distance(secret, keys.add(a, 0.5), x + 0.5) < 1e-5
    assert distance(secret, keys.sub(a, b), x - x[::-1]) < 1e-5
    assert distance(secret, keys.rotate(a, 5), np.roll(x, -5)) < 1e-4
    assert distance(secret, keys.conjugate(a), x.conj()) < 1e-4
    product = keys.multiply(a, b)
    assert product.level == 3 and distance(secret, product, x * x[::-1]) < 1e-4
    assert context.read(a.to_bytes()).precision_bits == pytest.approx(a.precision_bits, abs=0.1)
    again = context.read(product.to_bytes(), deviation=1e3)
    assert np.array_equal(secret.decrypt(again), secret.decrypt(product))
    assert distance(secret, product.drop_to(1), x * x[::-1]) < 1e-4


def test_polynomials(secret, keys, x):
    a = secret.encrypt(x.real, level=4)
    for coefficients, chebyshev, values in [
        ([0.5, 0, -1, 0.25], False, np.polynomial.polynomial.polyval),
        ([0.1, 0.2, 0.3], True, np.polynomial.chebyshev.chebval),
    ]:
        polynomial = ckks.Polynomial(coefficients, chebyshev=chebyshev)
        want = values(x.real, coefficients)
        assert np.allclose(polynomial(x.real), want)
        result = keys.polynomial(a, polynomial)
        assert result.level == 4 - polynomial.depth and distance(secret, result, want) < 1e-3


@pytest.mark.parametrize("chained", [False, True])
def test_transforms_say_which_keys_they_need(context, secret, x, chained):
    rng = np.random.default_rng(2)
    diagonals = {k: rng.uniform(-1, 1, SLOTS) for k in (-3, 0, 1, 2, 9)}
    transform = ckks.Transform(context, diagonals, level=3, chained=chained)
    keys = secret.keys(transform.keys)
    assert set(keys.ids) == set(transform.keys) and keys.memory_bytes > 0
    result = keys.transform(secret.encrypt(x, level=3), transform)
    want = sum(values * np.roll(x, -k) for k, values in diagonals.items())
    assert result.level == 2 and distance(secret, result, want) < 1e-3
    missing = secret.keys(transform.keys[:-1])
    with pytest.raises(TacitError, match="key"):
        missing.transform(secret.encrypt(x, level=3), transform)


def test_a_bootstrap_says_what_it_takes_before_it_runs(context):
    boot = ckks.Bootstrapper(ckks.Context("B"), chained=True)
    assert boot.level_in < boot.level_out and boot.failure_log2 < -100
    kinds = {key.kind for key in boot.keys}
    assert kinds == {"relinearise", "galois", "to-sparse", "from-sparse"}
    with pytest.raises(TacitError, match="sparse secret"):
        ckks.Bootstrapper(context)


def test_mistakes_are_named(context, secret, keys, x):
    a = secret.encrypt(x, level=4)
    low = a.drop_to(1)
    other = ckks.Context("C").secret()
    for mistake, what in [
        (lambda: secret.encrypt(x[:3], level=4), "slots"),
        (lambda: secret.encrypt([1e30, 0], level=4), "large|coefficient"),
        (lambda: secret.encrypt([np.nan, 0], level=4), "finite|NaN|number|coefficient"),
        (lambda: secret.encrypt(["a", "b"], level=4), "vector of numbers"),
        (lambda: secret.encrypt(x, level=5), "level 5"),
        (lambda: secret.encrypt(x, level=-1), "-1|negative"),
        (lambda: a.drop_to(0), "level"),
        (lambda: keys.multiply(low, low), "level"),
        (lambda: keys.add(a, low), "level"),
        (lambda: keys.rotate(a, 1), "Galois element"),
        (lambda: keys.add(a, float("inf")), "number"),
        (lambda: other.decrypt(a), "other parameters"),
        (lambda: secret.keys(ckks.Key("galois", 4, 1, 1)), "element 4"),
        (lambda: secret.keys(ckks.Key("relinearise", 0, 9, 1)), "level 9"),
        (lambda: secret.keys(ckks.Key("relinearise", 0, 4, 7)), "special primes"),
        (lambda: context.read(b"nonsense"), "ciphertext"),
        (lambda: ckks.Polynomial([1.0]), "constant"),
        (lambda: ckks.Transform(context, {}, level=3), "slots"),
        (lambda: ckks.Transform(context, {0: [1.0] * 4, 1: [1.0] * 8}, level=3), "diagonal|slots|values"),
        (lambda: ckks.Transform(context, {0: [1.0] * 4}, level=1), "level 1"),
        (lambda: keys.rotate("a", 1), "rotate"),
    ]:
        with pytest.raises(TacitError, match=what):
            mistake()
