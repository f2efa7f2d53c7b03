import pytest

from latchwork.tasks import EvenPairs, Regular, Tomita

WORDS = {  # of each language, and not of it
    1: ("1 11 111 1111 11111111", "0 10 01 00 011 110 11111110 10111111"),
    2: ("10 1010 101010 10101010101010", "1 0 11 00 01 101 100 1001010 10110 110101010"),
    3: (
        "1 0 01 11 00 100 110 111 000 100100 110000011100001 111101100010011100",
        "10 101 010 1010 1110 1011 10001 111010 1001000 11111000 0111001101 11011100110",
    ),
    4: (
        "1 0 10 01 00 100100 001111110100 0100100100 11100 010",
        "000 11000 0001 000000000 11111000011 1101010000010111",
    ),
    5: (
        "11 00 1001 0101 1010 1000111101 1001100001111010 111111 0000",
        "0 111 011 000000000 1000 01 10 1110010100 010",
    ),
    6: (
        "10 01 1100 101010 111 000000 10111 0111101111 100100100",
        "1 0 11 00 101 011 11001 1111 00000000 010111 101111111",
    ),
    7: ("1 0 10 01 11111 000 00110011 0101 0000100001111 00100 011111011111 00", "1010 00110011000 0101010101 1011010"),
}


def accepts(task, word: str) -> bool:
    return task.oracle([int(bit) for bit in word])[-1] == 1


@pytest.mark.parametrize("number", WORDS)
def test_a_tomita_language_has_the_words_it_should(number):
    task = Tomita(number)
    inside, outside = (each.split() for each in WORDS[number])
    assert [word for word in inside if not accepts(task, word)] == []
    assert [word for word in outside if accepts(task, word)] == []


def test_even_pairs_means_that_the_ends_are_equal():
    task = EvenPairs()
    assert task.oracle([0, 1, 1, 0, 0, 1]) == [1, 0, 0, 1, 1, 0]
    assert all(accepts(task, word) == (word[0] == word[-1]) for word in (f"{k:b}" for k in range(1, 512)))


def test_the_alphabet_orders_the_letters():
    assert Regular("(ab)*").oracle([0, 1]) == [0, 1]
    assert Regular("(ab)*", "ba").oracle([1, 0]) == [0, 1]
    assert Regular("(ab)*", "ba").name == "regular((ab)*, ba)"
    assert Regular("(ab)*", "abc").vocabulary == 3
    assert Regular("a*").vocabulary == 2  # a letter, two answers


def test_a_regular_expression_gives_tomitas_languages_too():
    for number, pattern in ((1, "1*"), (2, "(10)*"), (7, "0*1*0*1*")):
        by_pattern, by_table = Regular(pattern, "01"), Tomita(number)
        for word in (f"{k:b}" for k in range(1, 256)):
            bits = [int(bit) for bit in word]
            assert by_pattern.oracle(bits) == by_table.oracle(bits)
        assert len(by_pattern.successor) == len(by_table.successor)


def test_a_tomita_language_has_a_number():
    with pytest.raises(ValueError, match="number must be 1 to 7; got 8"):
        Tomita(8)
