"""Text of others reaches no terminal as it is."""

import json

from tacit._text import MOST, plain, plainly

HOSTILE = "gone\x1b]0;owned\x07\r\nerror: forged\x9b2J\u202e\u2066\u2028"


def test_what_a_terminal_obeys_is_hidden_and_the_rest_stays():
    assert plain(HOSTILE).isprintable() and "owned" in plain(HOSTILE)
    for text in ("", "digits", "Zürich 模型 café", "–“”€ 🙂"):
        assert plain(text) == text
    assert plain("x" * (MOST + 1)) == "x" * MOST + "..." and plain("x" * MOST) == "x" * MOST


def test_answers_of_a_front_are_plain_in_every_part():
    told = plainly(json.loads(json.dumps({"error": HOSTILE, "nodes": [{HOSTILE: HOSTILE, "run": 3, "up": None}]})))
    node = told["nodes"][0]
    assert all(text.isprintable() for text in (told["error"], *node, node[plain(HOSTILE)]))
    assert node["run"] == 3 and node["up"] is None
