"""Regular expressions mean what they mean to Python's re, for the whole grammar; whatever else it takes is refused."""

import re

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latchwork.automata import Machine
from latchwork.machines.expression import letters
from latchwork.tasks import Regular, make_task
from machine_cases import words

COUNTS = ["*", "+", "?", "{0}", "{1}", "{3}", "{0,}", "{2,}", "{,2}", "{0,0}", "{0,2}", "{1,3}"]
ATOMS = [
    *"abc",
    ".",
    "[ab]",
    "[a-c]",
    "[^a]",
    "[^b-z]",
    "[x-z]",
    r"\w",
    r"\D",
    r"\W",
    r"[^\Wa]",
    r"[\dc]",
    "()",
    "(?:)",
]
EXPRESSIONS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(st.sampled_from(["({})", "(?:|{})", "({}|)"]), inner, st.sampled_from(COUNTS)).map(
            lambda made: made[0].format(made[1]) + made[2]
        ),
        st.tuples(st.sampled_from(ATOMS), st.sampled_from(COUNTS)).map("".join),
    ),
    max_leaves=8,
)


def by_re(pattern: str, alphabet: str, word) -> list[int]:
    text = "".join(alphabet[letter] for letter in word)
    return [int(re.fullmatch(pattern, text[: t + 1]) is not None) for t in range(len(word))]


@settings(max_examples=300)
@given(EXPRESSIONS)
def test_an_expression_matches_what_re_matches(pattern):
    every = [word for word in words(3, 5) if len(word) == 5]
    found = Machine.from_regex(pattern, "abc").run(numpy.array(every))
    assert found.tolist() == [by_re(pattern, "abc", word) for word in every]


@pytest.mark.parametrize(
    "pattern", ["a{0}", "(ab){0}", "b(a{0,0})b", "a{0}b", "(a{0}|b){2}", "(a|b{0})*a", "[ab]{2}", r"\w\w", "", "a||b"]
)
def test_the_task_and_its_oracle_agree_with_re(pattern):
    task = Regular(pattern, "ab")
    batch = task.sample("train", 0, rows=8, length=9)
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        assert targets == task.oracle(tokens) == by_re(pattern, "ab", tokens)


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("b[d-f]*a", "abdef"),
        (r"\d{2}", "0123456789"),
        ("(x|[^y])z{2,3}", "xyz"),
        (r"\(\)\.", "().",),
        (r"[\]\-+]", "+-]"),
        (r"\D\W.", ""),
        ("é*", "é"),
    ],
)  # fmt: skip
def test_the_alphabet_is_what_the_expression_names(pattern, named):
    assert letters(pattern) == named
    if named:
        assert Machine.from_regex(pattern) == Machine.from_regex(pattern, named)
        assert Regular(pattern).alphabet == named


def test_word_characters_are_those_of_ascii_unless_the_alphabet_says_so():
    assert len(letters(r"\w")) == 63
    assert Machine.from_regex(r"\w", "é-").run([[0], [1]]).tolist() == [[1], [0]]
    assert Machine.from_regex("[a-z]", "cA").run([[0], [1]]).tolist() == [[1], [0]]


@pytest.mark.parametrize("sign", r"()[]{}|*+?.\^$&-~")
def test_a_sign_after_a_backslash_is_a_letter(sign):
    pattern, alphabet = f"(\\{sign}a)+|[\\{sign}]", f"a{sign}"
    for word in words(2, 4):
        assert Machine.from_regex(pattern, alphabet).run([word])[0].tolist() == by_re(pattern, alphabet, word)
    task = make_task(f"regular({pattern}, {alphabet})")
    assert (task.pattern, task.alphabet) == (pattern, alphabet)
    assert make_task(task.name).name == task.name


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(ab", r"there is a ( without a ); for the letter write \("),
        ("ab)", r"there is a ) without a (; for the letter write \)"),
        ("*a", r"there is nothing to repeat before *; for the letter write \*"),
        ("a|+", r"there is nothing to repeat before +; for the letter write \+"),
        ("a{3,1}", "{3,1} must go from the least number to the largest"),
        ("a**", "a repetition is repeated; put the first into a group: (a*)?"),
        ("a+?", "a repetition is repeated"),
        ("a{2}{3}", "a repetition is repeated"),
        ("a{}", r"{ begins no {m}, {m,}, {,n} or {m,n} of at most nine digits; for the letter write \{"),
        ("a{1, 2}", "{ begins no {m}"),
        ("a{,}", "{ begins no {m}"),
        ("a{1", "{ begins no {m}"),
        ("a{" + "0" * 10 + "}", "of at most nine digits"),
        ("abc", "'c' is not in the alphabet"),
        ("a b", "' ' is not in the alphabet"),
        ("a,b", "',' is not in the alphabet"),
        ("^a", r"the whole word is matched, without ^; for the letter write \^"),
        ("a$", r"the whole word is matched, without $; for the letter write \$"),
        ("a&b", r"& is a sign; for the letter write \&"),
        ("a}", r"} is a sign; for the letter write \}"),
        ("(?i:a)", "of the groups that begin with (? only (?:...) is known"),
        ("(?=a)", "only (?:...) is known"),
        (r"a\b", r"\b is unknown; there are \d, \D, \w, \W, and \ before a sign"),
        (r"(a)\1", r"\1 is unknown"),
        (r"\s", r"\s is unknown"),
        ("a\\", r"\ is unknown"),
        ("[ab", r"there is a [ without a ]; for the letter write \["),
        ("[]", r"a set must have a letter; for the letter ] write \]"),
        ("[^]", "a set must have a letter"),
        ("[b-a]", "a range must go from a letter up to another"),
        (r"[a-\d]", "a range must go from a letter up to another"),
        ("[a-]", r"a range has no end; for the letter - write \-"),
        ("[-a]", r"- stands in a set; for the letter write \-"),
        ("[[a]", r"[ stands in a set; for the letter write \["),
        ("[a&&b]", r"& stands in a set; for the letter write \&"),
    ],
)
def test_what_is_no_expression_is_explained(pattern, reason):
    start = re.escape("pattern must be a regular expression over 'ab'; got ")
    with pytest.raises(ValueError, match=f"{start}.*at character .*{re.escape(reason)}"):
        Machine.from_regex(pattern, "ab")


@pytest.mark.parametrize("alphabet", ["", "aa", "a b", "a,b", "a\n", "".join(map(chr, range(0x4E00, 0x4E00 + 1001)))])
def test_what_is_no_alphabet_is_explained(alphabet):
    with pytest.raises(ValueError, match="alphabet must be letters, at most 1,000, each once, no comma and no white"):
        Machine.from_regex("a*", alphabet)
    with pytest.raises(ValueError, match="alphabet must be letters"):
        Regular("a*", alphabet)


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ("a{20000}", "at most 1,000 letters when its repetitions are written out"),
        ("((a{101}){0,9}){2,}", "at most 1,000 letters"),
        ("(((a{99}){99}){99}){99}", "at most 1,000 letters"),
        ("a" * 1001, "at most 1,000 letters"),
        ("(a|b)*a(a|b){24}", "an automaton of at most 10,000 states"),
        ("(a|b)*a(a|b){480}", "an automaton of at most 10,000 states"),
        ("(" * 101 + "a" + ")" * 101, "at most 100 groups inside each other"),
        ("(" * 10_000 + ")" * 10_000, "at most 10,000 characters; got 20,000"),
        ("[b-\U0010ffff]", "alphabet must be letters, at most 1,000"),
    ],
)
def test_what_is_too_large_is_refused_before_it_is_made(pattern, limit):
    for make in (Machine.from_regex, Regular):
        with pytest.raises(ValueError, match=limit):
            make(pattern)


def test_a_wide_alphabet_counts_towards_the_limit():
    with pytest.raises(ValueError, match="in 1,000,000 steps"):
        Machine.from_regex("(a|b)*a(a|b){11}", "ab" + "".join(map(chr, range(0x4E00, 0x4E00 + 900))))


def test_what_is_just_within_the_limits_is_made():
    assert Machine.from_regex("a{1000}").n_states == 1001
    assert Machine.from_regex("(a|b)*a(a|b){11}").n_states == 1 << 11
    assert Machine.from_regex("(" * 100 + "a" + ")" * 100).n_states == 2
    assert Machine.from_regex("((a{0}){999999999}){999999999}", "a").run([[0]]).tolist() == [[0]]
