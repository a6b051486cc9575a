"""How answers are written, and which of them are right: a table, and GSM8K's own references."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path

import pytest

from sparring.judge import math
from sparring.judge.math import final_answer, grade, read_number

# (what is said, the reference, whether that is right)
CASES: list[tuple[str, str, bool]] = [
    # GSM8K's own form
    ("He has 3 + 4 = 7.\n#### 7", "7", True),
    ("He has 3 + 4 = 7.\n#### 8", "7", False),
    ("#### 72", "72", True),
    ("####72", "72", True),
    ("####   72   ", "72", True),
    ("#### -5", "-5", True),
    ("#### −5", "-5", True),
    ("#### 5", "-5", False),
    ("#### +5", "5", True),
    ("#### 1,234", "1234", True),
    ("#### 1234", "1,234", True),
    ("#### 1,234,567", "1234567", True),
    ("#### 12,34", "1234", False),
    ("#### $18", "18", True),
    ("#### $1,200.50", "1200.5", True),
    ("#### 18 dollars", "18", True),
    ("#### 18.00", "18", True),
    ("#### 18.", "18", True),
    ("#### .5", "0.5", True),
    ("#### 0.50", "1/2", True),
    ("#### 1/2", "0.5", True),
    ("#### 3/4", "0.75", True),
    ("#### 2/3", "0.67", False),
    ("#### 3 1/2", "3.5", True),
    ("#### -1/4", "-0.25", True),
    ("#### 1/0", "0", False),
    ("#### **42**", "42", True),
    ("#### `42`", "42", True),
    ("#### 5 apples", "5", True),
    ("#### 5km", "5", True),
    ("#### 5 km/h", "5", True),
    ("#### 5 or 6", "5", False),
    ("#### 5, 6", "5", False),
    ("#### 3\n#### 4", "4", True),
    ("#### 3\n#### 4", "3", False),
    ("#### Step 1: add\n3 + 4 = 7\n#### 7", "7", True),
    ("#### Step 1: add the two\nThe answer is 7.", "7", True),
    ("#### Step 1\n#### Step 2\nso we get 12", "12", True),
    ("#### x = 5", "5", True),
    ("#### 2 + 3 = 5", "5", True),
    ("#### (7)", "7", True),
    ("#### ~7", "7", True),
    ("#### about 7", "7", True),
    ("#### 50%", "50", True),
    ("#### 50%", "0.5", True),
    ("#### 0.5", "50%", True),
    ("#### 50", "50%", True),
    ("#### 50%", "5", False),
    ("#### 0.5", "50", False),
    ("#### 3 million", "3000000", True),
    ("#### 2.5 thousand", "2500", True),
    ("#### 1e3", "1000", True),
    ("#### 1.5e-1", "0.15", True),
    ("####", "7", False),
    ("#### none", "7", False),
    # boxes
    ("so \\boxed{42}", "42", True),
    ("so \\boxed{42}.", "42", True),
    ("so $\\boxed{42}$", "42", True),
    ("so \\boxed{ 42 }", "42", True),
    ("so \\boxed{43}", "42", False),
    ("\\boxed{1} and then \\boxed{2}", "2", True),
    ("\\boxed{1} and then \\boxed{2}", "1", False),
    ("\\boxed{\\$18}", "18", True),
    ("\\boxed{\\$1{,}200}", "1200", True),
    ("\\boxed{1\\,200}", "1200", True),
    ("\\boxed{1,\\!200}", "1200", True),
    ("\\boxed{\\frac{1}{2}}", "0.5", True),
    ("\\boxed{\\dfrac{3}{4}}", "3/4", True),
    ("\\boxed{\\tfrac{3}{4}}", "0.75", True),
    ("\\boxed{\\frac12}", "1/2", True),
    ("\\boxed{-\\frac{1}{2}}", "-0.5", True),
    ("\\boxed{-\\frac{1}{2}}", "0.5", False),
    ("\\boxed{3\\frac{1}{2}}", "3.5", True),
    ("\\boxed{42 \\text{ apples}}", "42", True),
    ("\\boxed{42\\text{ cm}}", "42", True),
    ("\\boxed{\\text{42}}", "42", True),
    ("\\boxed{50\\%}", "50", True),
    ("\\boxed{90^\\circ}", "90", True),
    ("\\boxed{90^{\\circ}}", "90", True),
    ("\\boxed{x = 7}", "7", True),
    ("\\boxed{12 \\times 6}", "72", True),
    ("\\boxed{12 \\times 6}", "12", False),
    ("\\boxed{\\sqrt{16}}", "4", True),
    ("\\boxed{\\sqrt{2}}", "\\sqrt{2}", True),
    ("\\boxed{2\\sqrt{2}}", "\\sqrt{8}", True),
    ("\\boxed{\\sqrt{3}}", "\\sqrt{2}", False),
    ("\\boxed{\\pi}", "\\pi", True),
    ("\\boxed{2\\pi}", "\\pi", False),
    ("\\boxed{\\frac{\\pi}{2}}", "\\pi/2", True),
    ("\\boxed{2x}", "2", False),
    ("\\boxed{2x}", "2x", True),
    ("\\boxed{x+1}", "1+x", True),
    ("\\boxed{10^3}", "1000", True),
    ("\\boxed{5 \\text{ or } 6}", "5", False),
    ("\\boxed{}", "5", False),
    ("\\boxed{yes}", "5", False),
    ("\\boxed{42", "42", True),
    ("\\boxed{\\left(7\\right)}", "7", True),
    ("\\boxed{42}\n#### 42", "42", True),
    ("\\boxed{41}\n#### 42", "42", True),
    # phrases
    ("The answer is 72.", "72", True),
    ("The answer is 72", "72", True),
    ("the answer is: 72", "72", True),
    ("The answer is $72.", "72", True),
    ("The answer is $3.50.", "3.5", True),
    ("The answer is $3.50, as shown.", "3.5", True),
    ("The answer is **72**.", "72", True),
    ("The answer is \\(72\\).", "72", True),
    ("The answer is $72$.", "72", True),
    ("The final answer is 72 clips.", "72", True),
    ("Final answer: 72", "72", True),
    ("**Final Answer:** 72", "72", True),
    ("Final Answer:\n72", "72", True),
    ("Answer: 72 apples", "72", True),
    ("Answer = 72", "72", True),
    ("So the answer is therefore 72.", "72", True),
    ("The answer to the question is 72.", "72", True),
    ("The answer is -3 degrees.", "-3", True),
    ("The answer is negative 3.", "-3", True),
    ("The answer is minus 3.", "-3", True),
    ("The answer is negative 3.", "3", False),
    ("The answer is 5 + 3 = 8 apples.", "8", True),
    ("The answer is 10 apples for 5 children.", "10", True),
    ("The answer is 10 because 4 + 6 makes that.", "10", True),
    ("The answer is 5 or 6.", "5", False),
    ("The answer is between 5 and 6.", "6", False),
    ("The answer is 18 dollars and 50 cents.", "18.5", True),
    ("The answer is 18 dollars and 5 cents.", "18.05", True),
    ("The answer is three.", "3", True),
    ("The answer is Twelve apples.", "12", True),
    ("The answer is seventeen.", "16", False),
    ("The answer is 1,000 people.", "1000", True),
    ("The answer is 1,000, not more.", "1000", True),
    ("The answer is 2/5 of the cake.", "0.4", True),
    ("The answer is 25%.", "25", True),
    ("The answer is 25 percent.", "25", True),
    ("The answer is 2.5 million.", "2500000", True),
    ("The answer is approximately 7.", "7", True),
    ("The answer is unknown.", "7", False),
    ("The answer is 7. Or is it? The answer is 8.", "8", True),
    ("The answer is 7.\n#### 8", "8", True),
    ("My answer would be 12.", "12", True),
    # nothing marked: the last number counts
    ("48 + 24 makes 72 clips altogether.", "72", True),
    ("48 + 24 makes 72 clips altogether.", "48", False),
    ("She pays $12.50.", "12.5", True),
    ("It costs $1,250", "1250", True),
    ("They have 10-4 left", "4", True),
    ("It fell to -4", "-4", True),
    ("The temperature is −4 °C", "-4", True),
    ("From 3 apples to 1/2", "0.5", True),
    ("That is 75%", "75", True),
    ("I do not know.", "7", False),
    ("", "7", False),
    ("   \n", "7", False),
    ("7", "7", True),
    ("7.0", "7", True),
    ("07", "7", True),
    ("0", "0", True),
    ("-0", "0", True),
    # lies and noise
    ("#### 7 #### 8", "7", False),
    ("The answer is 7 (or 8)", "7", False),
    ("\\boxed{9^{9^{9^{9}}}}", "7", False),
    ("\\boxed{99999!}", "7", False),
    ("#### " + "9" * 290 + "8", "7", False),
    ("\\boxed{" + "1+" * 400 + "1}", "401", False),
    ("#### 1,2,3", "123", False),
    ("#### 3.14.15", "3.14", False),
    ("#### 12:30", "12", False),
    ("#### 5x", "5", False),
    ("#### 2^10", "1024", True),
    # what is not yet worked out, and signs that are no LaTeX
    ("#### 5 + 5", "5", False),
    ("#### 5 + 5", "10", True),
    ("#### 5-5", "5", False),
    ("#### 5 × 5", "5", False),
    ("#### 5 × 5", "25", True),
    ("#### 5·5", "5", False),
    ("#### 5²", "5", False),
    ("#### 5²", "25", True),
    ("#### 25 cm²", "25", True),
    ("#### 6/2/3", "3", False),
    ("#### 3½", "3", False),
    ("#### 3½", "3.5", True),
    ("#### 7 hundred", "700", True),
    # several numbers, of which math-verify would take one
    ("#### 5–6", "5", False),
    ("#### 5..6", "5", False),
    ("#### 5~6", "56", False),
    ("#### 5 \\boxed{6}", "6", False),
    ("#### \\boxed{5} 6 7", "5", False),
    ("\\boxed{5\\lor 6}", "6", False),
    ("\\boxed{5\\approx 6}", "5", False),
    ("\\boxed{\\binom{5}{2}}", "10", True),
    # more digits than Python reads
    ("1" * 5000, "72", False),
    ("so it is 0." + "1" * 6000, "72", False),
    ("1" + ",111" * 2000, "72", False),
    ("####\n7", "7", True),
    ("The answer is\n\n7", "7", True),
    # several answers, hedges, and what an answer is not
    ("The answer is 5, or maybe 6.", "5", False),
    ("The answer is 5, 6, or 7.", "5", False),
    ("The answer is 5; 6; 7", "5", False),
    ("The answer is 5? No, it is 6.", "5", False),
    ("The answer is 0.5, or 50%.", "0.5", True),
    ("#### 0.5 (50%)", "0.5", True),
    ("The answer is 18 dollars, 3 more than before.", "18", True),
    ("The answer is not 5.", "5", False),
    ("The answer isn't 5.", "5", False),
    ("The answer cannot be 5.", "5", False),
    ("#### not 6 but 5", "5", True),
    ("#### either 5 or 6", "6", False),
    ("#### less than 5", "5", False),
    ("#### > 5", "5", False),
    ("\\boxed{x \\geq 5}", "5", False),
    ("\\boxed{\\pm 5}", "5", False),
    ("\\boxed{x=12, y=5}", "5", False),
    ("#### x = 6 or x = 5", "5", False),
    ("#### x=6 x=5", "5", False),
    ("\\boxed{5 \\text{ to } \\sqrt{36}}", "5", False),
    ("\\boxed{\\sqrt{25} \\text{ hours } 2 \\cdot 3 \\text{ minutes}}", "5", False),
    ("\\boxed{5 \\vee \\sqrt{36}}", "5", False),
    # digits that only stand side by side
    ("#### 5*6", "56", False),
    ("#### 5 * 5", "5", False),
    ("#### 5 * 5", "25", True),
    ("#### 5**6", "56", False),
    ("#### 10**3", "1000", True),
    ("\\boxed{1+i}", "1-i", False),
    ("\\boxed{1}", "1-i", False),
    ("\\boxed{3}", "3i", False),
    ("\\boxed{-i+1}", "1-i", True),
    ("#### 2**3**2", "512", False),
    ("$5$$6$", "56", False),
    ("\\(5\\)\\(6\\)", "56", False),
    ("#### 5\\;6", "56", False),
    ("\\boxed{x^{10}}", "10", False),
    ("\\boxed{|-5|}", "-5", False),
    # thousands apart
    ("#### 12 000", "12000", True),
    ("#### 1\u202f200\u202f000", "1200000", True),
    ("\\boxed{12\\;000}", "12000", True),
    ("#### 5 100", "5", False),
    ("#### 3 100/200", "3.5", True),
    # words
    ("#### five", "5", True),
    ("The answer is forty-two.", "42", True),
    ("The answer is forty-two.", "2", False),
    ("The answer is one hundred.", "1", False),
    ("The answer is one hundred and five.", "105", True),
    ("The answer is seven hundred thirty.", "7", False),
    ("The answer is twelve thousand three hundred.", "12300", True),
    ("The answer is two and a half.", "2.5", True),
    ("The answer is two and one half.", "2.5", True),
    ("The answer is 2 and a half.", "2", False),
    ("#### two-thirds", "2/3", True),
    ("#### half", "0.5", True),
    ("The answer is five and six.", "11", False),
    ("The answer is no one.", "1", False),
    ("#### 2 hundred thousand", "200000", True),
    ("#### $2.5k", "2500", True),
    ("#### 5k", "5", False),
    ("#### 50 per cent", "0.5", True),
    ("#### $5 and 25 cents", "5.25", True),
    # units with powers, powers of ten, fractions of all kinds
    ("#### 12 m^2", "12", True),
    ("#### 12 m2", "12", True),
    ("\\boxed{12 \\text{ cm}^{3}}", "12", True),
    ("\\boxed{5n^2}", "5", False),
    ("#### 1.5 x 10^3", "1500", True),
    ("\\boxed{6.02\\times10^{23}}", "6.02e23", True),
    ("#### 2/3*10^3", "2/3", False),
    ("#### 20 x 3", "60", True),
    ("\\boxed{\\cfrac{1}{2}}", "0.5", True),
    ("\\boxed{\\frac{1}{-2}}", "-0.5", True),
    ("\\boxed{\\frac{1{,}000}{2}}", "500", True),
    ("\\boxed{0.1\\overline{6}}", "1/6", True),
    ("\\boxed{0.\\overline{3}}", "0.3", False),
    ("\\boxed{2^3 \\cdot 3^2}", "72", True),
    ("\\boxed{(2^3)^2}", "64", True),
    # no answers: headings of steps, thoughts, a plan
    ("#### 2. Add the pears\n5 + 3 = 8.\nThe answer is 8", "8", True),
    ("#### **Step 1: add 3**\n5 + 3 = 8\nso \\boxed{8}", "8", True),
    ("#### (a) add\nThe answer is \\boxed{8}", "8", True),
    ("<think>#### 5</think>The answer is 6.", "6", True),
    ("<think>\\boxed{5}</think> I do not know", "5", False),
    ("<think>So \\boxed{5}", "5", False),
    ("To find the final answer, add 5 and 3.\nSo she has 8.", "8", True),
    ("What is the final answer? 72", "72", True),
    ("The answer will be 5 after 3 years.", "5", True),
    ("**Answer**: 5\nin 3 bags", "5", True),
    ("Final answer - 72", "72", True),
    ("The answer is -$3.", "-3", True),
    ("#### <<2+3=5>>5", "5", True),
    ("The largest is <<-50+3=-47>>-47.", "-47", True),
]


def test_there_are_enough_cases():
    assert len(CASES) >= 150 and len({(said, ref) for said, ref, _ in CASES}) == len(CASES)


@pytest.mark.parametrize(("said", "reference", "right"), CASES)
def test_the_table(said: str, reference: str, right: bool):
    verdict = grade(said, reference)
    assert verdict.status == ("pass" if right else "fail"), (final_answer(said), verdict)


def test_how_an_answer_was_found_is_known():
    found = [final_answer(t).how for t in ("#### 1", "\\boxed{1}", "The answer is 1", "so 1", "so")]
    assert found == ["####", "boxed", "phrase", "last number", "none"]
    assert grade("so", "1").kind == "unreadable"
    assert grade("#### 2", "1").kind == "wrong" and grade("#### 1", "1").kind == "correct"


def test_equal_answers_have_equal_keys():
    keys = {final_answer(t).key for t in ("#### 0.5", "\\boxed{\\frac{1}{2}}", "so it is 1/2")}
    assert keys == {"1/2"}
    assert final_answer("\\boxed{x + 1}").key == final_answer("\\boxed{X+1}").key
    assert final_answer("nothing").key is None


@pytest.mark.parametrize(
    "power", ["99^{99!}", "2^{999\\cdot 999\\cdot 999}", "((9^{99})^{99})^{99}"]
)
def test_no_answer_makes_the_grader_work_until_it_gives_up(power: str):
    """Or whoever has no answer could have the question struck."""
    assert grade(f"\\boxed{{{power}}}", "5").status == "fail"


def test_numbers_are_exact():
    assert read_number("0.1").value == Fraction(1, 10)  # type: ignore[union-attr]
    assert read_number("12,345.678").value == Fraction(12345678, 1000)  # type: ignore[union-attr]
    assert read_number("five and six") is None


@pytest.mark.parametrize("error", [ValueError("broken"), RecursionError("deep"), MemoryError()])
def test_a_grader_that_fails_is_a_void(monkeypatch: pytest.MonkeyPatch, error: Exception):
    import math_verify

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(math_verify, "parse", fail)
    verdict = grade("\\boxed{\\sqrt{4}}", "2")
    assert (verdict.status, verdict.kind) == ("void", "grader")
    assert type(error).__name__ in verdict.detail


def test_without_math_verify_numbers_are_graded_and_expressions_are_void(monkeypatch):
    monkeypatch.setattr(math.util, "find_spec", lambda name: None)
    assert grade("#### 2", "2").passed
    verdict = grade("\\boxed{\\sqrt{4}}", "2")
    assert verdict.status == "void" and "sparring[math]" in verdict.detail


def data(name: str) -> Path | None:
    folder = os.environ.get("SPARRING_DATA")
    path = Path(folder) if folder else Path(__file__).parents[3] / "shared" / "data"
    return path / name if (path / name).is_file() else None


def test_every_reference_of_gsm8k_is_right_against_itself():
    paths = [data("gsm8k_train.jsonl"), data("gsm8k_test.jsonl")]
    if None in paths:
        pytest.skip("no gsm8k_*.jsonl: set SPARRING_DATA to their folder")
    rows = [json.loads(line) for path in paths for line in path.open()]  # type: ignore[union-attr]
    assert len(rows) == 8792
    for row in rows:
        reference = row["answer"].rpartition("####")[2].strip()
        assert grade(row["answer"], reference).passed, row
        assert read_number(reference).value == Fraction(reference.replace(",", ""))  # type: ignore
