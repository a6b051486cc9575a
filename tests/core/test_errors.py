"""What is said of an unknown word: the nearest, or all, or some where they are many."""

from sparring.core.errors import nearest


def test_a_word_that_is_near_is_suggested_and_no_other() -> None:
    assert nearest("kuhm", ["kuhn", "leduc"]) == "did you mean 'kuhn'?"
    assert nearest("nowhere", ["coherent_math", "games"]) == "there are: coherent_math, games"
    assert nearest("x", []) == "there are: none"


def test_of_many_words_the_nearest_few_are_named() -> None:
    words = [f"option_{i}" for i in range(40)] + ["learning_rate"]
    answer = nearest("rate", words)
    assert answer.startswith("of 41 the nearest are: ") and answer.count(",") == 4
    assert "learning_rate" in answer
