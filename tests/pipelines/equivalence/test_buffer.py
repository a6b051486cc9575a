"""The buffer keeps all that is hard and a fair share of the rest."""

from collections import Counter

from sparring.pipelines.equivalence.teacher import histogram, keep


def test_hard_ones_are_kept_and_easy_ones_by_stratum() -> None:
    items = [("seq", 6.0)] * 3 + [("seq", 5.0)] * 10 + [("sinq", 0.0)] * 20 + [("sinq", 10.0)]
    kept = keep(items, lambda i: i[1], lambda i: i[0], threshold=5, easy=0.2)
    assert Counter(kept) == {
        ("seq", 6.0): 3,
        ("seq", 5.0): 2,
        ("sinq", 0.0): 4,
        ("sinq", 10.0): 1,
    }


def test_no_stratum_is_forgotten_and_the_seed_alone_decides() -> None:
    items = [(f"s{i % 3}", float(i)) for i in range(30)]

    def choose(easy: float, seed: int) -> list[tuple[str, float]]:
        return keep(items, lambda i: 0.0, lambda i: i[0], easy=easy, seed=seed)

    assert {name for name, _ in choose(0.01, 1)} == {"s0", "s1", "s2"}
    assert choose(0.5, 1) == choose(0.5, 1) != choose(0.5, 2)
    assert choose(0.0, 1) == [] and choose(1.0, 1) == items


def test_the_histogram_holds_every_value() -> None:
    assert histogram([0.0, 0.9, 1.0, 5.0, 10.0, 10.0]) == [2, 1, 0, 0, 0, 1, 0, 0, 0, 2]
