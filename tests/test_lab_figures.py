"""Templates of figures in the documents, of `tacit.lab`."""

import pytest

from tacit import TacitError
from tacit.lab._figures import Template
from tacit.lab._papers import Checked

VALUE = {"sets": [{"name": "a/b", "keys": 12, "bytes": 1_234_567}, {"name": "c", "keys": 1_000}]}


def checked(template, document, update=False):
    one = Checked("tacit", "x.md")
    return one, one.compare(template, VALUE, document, update)


def holds(template, document):
    one, _ = checked(template, document)
    return not one.differs


def test_a_text_is_found_with_what_it_says_and_should_say():
    template = "| `a` | {/sets/name=a~1b/keys} keys, {/sets/0/bytes:MB.3} MB |"
    assert holds(template, "x\n| `a` | 12 keys, 1.235 MB |\n")
    drifted, kept = checked(template, document := "x\n| `a` | 13 keys, 1,004.235 MB |\n")
    assert drifted.differs and kept == document
    assert (drifted.old, drifted.new) == ("| `a` | 13 keys, 1,004.235 MB |", "| `a` | 12 keys, 1.235 MB |")
    assert Template(template).places(document) == [(2, 33)]
    _, written = checked(template, document, update=True)
    assert written == "x\n| `a` | 12 keys, 1.235 MB |\n"
    for template, document, count in (template, "| `a` | twelve keys, 1.235 MB |", 0), ("a {/sets/0/keys}", "a 12, a 12.", 2):
        assert checked(template, document)[0].problem.startswith(f"{count} texts are like")


def test_sums_ratios_and_forms():
    assert holds("x {/sets/0/keys + /sets/1/keys:,}", "x 1,012.")
    assert holds("x {/sets/1/keys over /sets/0/keys:.2}x", "x 83.33x")
    assert holds("x {/sets/0/bytes:MiB.2}, {/sets/0/bytes:,}", "x 1.18, 1,234,567")
    assert holds("x {/sets/0/keys over /sets/1/keys:%.1} %", "x 1.2 %")


def test_numbers_are_found_whole_or_not_at_all():
    places = Template("x {/a}").places
    assert [places(text) for text in ("x -1,234.5.", "x .5", "x -", "xx 7")] == [[(0, 10)], [], [], [(1, 4)]]
    assert Template("x {/a}0").places("x 10") == [], "the number takes the digit"


@pytest.mark.parametrize("text", ["{/a} b", "a {/a", "a {b}", "a {/a:furlongs.1}", "no number"])
def test_mistakes_in_texts_are_refused(text):
    with pytest.raises(TacitError, match="figures.toml"):
        Template(text)


@pytest.mark.parametrize(
    ("pointer", "what"), [("/none", "no `none`"), ("/a/x=1", "no `x=1`"), ("/a/0/x", "which is no number"), ("/a/-1", "no `-1`")]
)
def test_what_the_output_lacks_is_named(pointer, what):
    with pytest.raises(TacitError, match=what):
        Template(f"a {{{pointer}}}").filled({"a": [{"x": "text"}]})
