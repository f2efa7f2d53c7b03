"""Labelled words of a language are even, balanced, apart from those of training, and in pairs one edit apart."""

import numpy
from labelled_words import adversarial_set, even_words, key, labels_of, random_set
from learn_languages import from_length

from latchwork.machines import Machine

MACHINE = Machine.from_regex("(a|b)*abb", "ab")


def test_every_word_of_a_length_and_label_is_as_likely_as_any_other():
    random = numpy.random.default_rng(0)
    for label, number in ((1, 4), (0, 28)):
        words = even_words(MACHINE, random, 5, label, 4000)
        assert (labels_of(MACHINE, list(words)).labels == label).all()
        _, counts = numpy.unique(words, axis=0, return_counts=True)
        assert len(counts) == number
        assert abs(counts - 4000 / number).max() < 5 * (4000 / number) ** 0.5


def test_there_are_no_rows_where_no_word_has_the_label():
    assert even_words(MACHINE, numpy.random.default_rng(0), 2, 1, 10).shape == (0, 2)


def test_a_set_is_balanced_and_apart_from_another():
    random = numpy.random.default_rng(1)
    train = random_set(MACHINE, random, range(8, 12), 80)
    apart = frozenset(key(word[:length]) for word, length in zip(train.tokens, train.lengths, strict=True))
    test = random_set(MACHINE, random, range(8, 12), 80, apart)
    for words in (train, test):
        assert sorted(numpy.unique(words.lengths, return_counts=True)[1]) == [20] * 4
        assert words.labels.mean() == 0.5
    assert not any(key(w[:n]) in apart for w, n in zip(test.tokens, test.lengths, strict=True))


def test_adversarial_words_come_in_pairs_of_both_labels_one_edit_apart():
    words = adversarial_set(MACHINE, numpy.random.default_rng(2), range(8, 12), 40)
    assert len(words.labels) == 40
    texts = ["".join(map(str, word[:length])) for word, length in zip(words.tokens, words.lengths, strict=True)]
    for one, other, labels in zip(texts[::2], texts[1::2], words.labels.reshape(-1, 2), strict=True):
        assert sorted(labels) == [0, 1]
        assert distance(one, other) == 1


def distance(one, other):
    """Levenshtein's."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))
    return row[-1]


def test_a_machine_from_a_length_on_asks_for_no_answer_before():
    late = from_length(MACHINE, 3)
    words = [[0, 1, 1, 0, 1, 1], [1, 1, 1, 0, 0, 1]]
    expected = MACHINE.run(words)
    expected[:, :2] = MACHINE.n_symbols
    assert (late.run(words) == expected).all()
