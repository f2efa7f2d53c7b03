"""Files that others have damaged, or made to do damage: each loads as what it is, or is an error that names it.

Every kind of file that we read is damaged in every way that fits it, drawn by a seed. What has a hash must load to
what was saved. What has none must load to what the file now says.
"""

import json
import os
import random
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest
from damaged_kinds import KINDS

SECONDS = 10  # a file that takes longer hangs


def cut(content, rng):
    return content[: rng.randrange(len(content))]


def flip(content, rng):
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


def swap(content, rng):
    a, b, c = sorted(rng.randrange(len(content)) for _ in range(3))
    return content[:a] + content[b:c] + content[a:b] + content[c:]


def overwrite(content, rng):
    place = rng.randrange(len(content))
    return (content[:place] + rng.randbytes(8) + content[place + 8 :])[: len(content)]


BYTES = {
    **{f"cut {seed}": cut for seed in range(3)},
    **{f"flip {seed}": flip for seed in range(8)},
    **{f"swap {seed}": swap for seed in range(3)},
    **{f"overwrite {seed}": overwrite for seed in range(3)},
    "empty": lambda content, rng: b"",
    "longer": lambda content, rng: content + b"more",
    "zeros": lambda content, rng: bytes(len(content)),
    "a long header": lambda content, rng: (1 << 62).to_bytes(8, "little") + content[8:],
    "lists in lists": lambda content, rng: b"[" * 100_000,
    "objects in objects": lambda content, rng: b'{"a":' * 500 + b"1" + b"}" * 500,
    "null": lambda content, rng: b"null",
    "UTF-16": lambda content, rng: content.decode("latin-1").encode("utf-16"),
    "a byte order mark": lambda content, rng: b"\xef\xbb\xbf" + content,
    "a key twice": lambda content, rng: content.replace(b"{", b'{"a": 1, "a": 1, ', 1),
    "NaN": lambda content, rng: content.replace(b"{", b'{"a": NaN, ', 1),
    "infinity": lambda content, rng: content.replace(b"{", b'{"a": 1e999, ', 1),
}


def instead(make):
    """A damage that takes the file away and makes something else at its path."""

    def damage(path):
        path.unlink()
        make(path)

    return damage


FILES = {
    "missing": Path.unlink,
    "a directory": instead(Path.mkdir),
    "a loop of links": instead(lambda path: path.symlink_to(path.name)),
    "a pipe": instead(os.mkfifo),
    "a device": instead(lambda path: path.symlink_to("/dev/zero")),
    "huge": lambda path: os.truncate(path, 1 << 40),  # a hole, which takes no room
    "not readable": lambda path: path.chmod(0),
}


def leaves(values, place=()):
    """The places of all values in JSON."""
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in inner:
        yield (*place, key)
        yield from leaves(value, (*place, key))


def change(values, rng, new):
    """One value exchanged, or taken out if it is given no new one."""
    *place, last = rng.choice(list(leaves(values)))
    for key in place:
        values = values[key]
    if new is None:
        del values[last]
    else:
        values[last] = new(values[last])


def deep(_):
    values = []
    for _ in range(200):
        values = [values]
    return values


NEW = {
    "without": None,
    "a text": lambda old: "x",
    "null": lambda old: None,
    "a list": lambda old: [old],
    "an object": lambda old: {"a": old},
    "true": lambda old: True,
    "huge": lambda old: 10**30,
    "larger than a float": lambda old: 10**400,
    "a large number": lambda old: 10**9,
    "many": lambda old: 100_000,
    "negative": lambda old: -1,
    "a fraction": lambda old: 0.5,
    "deep": deep,
}


@contextmanager
def time_limit():
    def stop(*_):
        raise AssertionError(f"it took more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def covers(found, values):
    """Whether what was read has all that a file says; what it does not say has its default."""
    if isinstance(values, dict):
        return isinstance(found, dict) and all(name in found and covers(found[name], values[name]) for name in values)
    if isinstance(values, list):
        return len(found) == len(values) and all(map(covers, found, values))
    return found == values or (isinstance(found, float) and found == float(values))


def check(kind, folder, saved):
    """Read it: an error that names a file of the folder, or the right values. Whether it was read."""
    path = folder / kind.file
    try:
        with time_limit():
            found = kind.read(folder)
    except (ValueError, OSError, TypeError) as error:
        message = str(error)
        names = {path.name, str(folder), *(each.name for each in folder.rglob("*"))}
        assert any(name in message for name in names), message
        assert len(message) < 2000, message
        return False
    if kind.says == "what was saved":
        assert found == saved
    elif kind.says == "what it says":
        assert covers(found, json.loads(path.read_bytes().decode("utf-8-sig")))
    return True


@pytest.fixture(params=KINDS)
def made(request, tmp_path, tmp_path_factory, monkeypatch):
    """A kind of file, a function that makes a folder with one, and what it is read as."""
    kind = KINDS[request.param]
    kind.make(tmp_path)
    contents = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def make(name):
        folder = tmp_path / "damaged" / name.replace("/", " ")
        for path, content in contents.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        return folder

    return kind, make, kind.read(tmp_path)


def test_a_file_of_other_bytes(made):
    kind, make, saved = made
    for name, damage in BYTES.items():
        folder = make(name)
        path = folder / kind.file
        content = path.read_bytes()
        path.write_bytes(damage(content, random.Random(name)))
        check(kind, folder, saved)


def test_something_else_in_its_place(made):
    kind, make, saved = made
    for name, damage in FILES.items():
        if name == "not readable" and os.geteuid() == 0:
            continue  # root reads all
        if name == "huge" and kind.file.startswith(("00000004/", "a.txt.gz")):
            continue  # the files of a checkpoint are hashed whole, and gzip reads zeros behind its end
        if name == "a pipe" and kind.file == "trace.csv":
            continue  # as a shell gives it with <(command)
        folder = make(name)
        damage(folder / kind.file)
        assert not check(kind, folder, saved) or name == "missing"


@pytest.mark.parametrize("seed", range(3))
def test_json_of_other_values(made, seed):
    kind, make, saved = made
    if not kind.file.endswith(".json"):
        return
    for name, new in NEW.items():
        folder = make(name)
        path = folder / kind.file
        values = json.loads(path.read_text(encoding="utf-8"))
        change(values, random.Random(f"{kind.file} {name} {seed}"), new)
        path.write_text(json.dumps(values))
        check(kind, folder, saved)
