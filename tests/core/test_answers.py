import pytest

from sparring.core.answers import answer, ask, boxed, limit


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\boxed{4}", "4"),
        (r"I like \boxed{1}, no: \boxed{ 7 } it is.", " 7 "),
        (r"\boxed{\text{bet}}", r"\text{bet}"),
        (r"\boxed{3} and then \boxed{5", "3"),
        (r"\boxed{}", ""),
        (r"\boxed{5", None),
        ("boxed{5}", None),
        ("4", None),
        ("", None),
    ],
)
def test_the_last_complete_box_counts(text, inside):
    assert boxed(text) == inside


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("4", "4"),
        (" 4\n", "4"),
        ("[4]", "4"),
        (r"so \boxed{[4]}", "4"),
        (r"\boxed{\text{bet}}", "bet"),
        ("I take 4", "I take 4"),  # no box: the whole text, which no game accepts
        (r"4 \boxed{}", ""),
    ],
)
def test_without_a_box_the_whole_text_is_the_action(text, action):
    assert answer(text) == action


def test_what_is_asked_and_how_long_the_answer_may_be():
    assert "step by step" in ask("reason", "x", "f") and r"\boxed{}" in ask("reason", "x", "f")
    assert ask("short", "x", r"\boxed{1}").endswith(r"x: \boxed{1}")
    assert limit("terse", 1, 16, None) == {"max_tokens": 1}
    assert limit("short", 1, 16, None) == {"max_tokens": 16}
    assert limit("reason", 1, 16, None) == {}
    assert limit("terse", 1, 16, 3) == {"max_tokens": 3}
