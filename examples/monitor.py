"""From login events to an alarm that is proved right for logs of any length: python examples/monitor.py"""

import random

from latchwork import learn


def session(chance):
    """Events, and after each of them whether the account should be locked: from the third failure in a row on."""
    events, locked, failures = [], [], 0
    for _ in range(chance.randint(3, 20)):
        events.append(chance.choice(["fail", "fail", "login", "logout", "unlock"]))
        if events[-1] == "fail":
            failures = min(failures + 1, 3)
        elif failures < 3 or events[-1] == "unlock":
            failures = 0 if events[-1] != "logout" else failures
        locked.append("locked" if failures == 3 else "open")
    return events, locked


def main(folder="monitor", seconds=20):
    """Learn from 400 sessions of which one label in a hundred is wrong, and write the folder."""
    chance = random.Random(0)
    logs, labels = zip(*(session(chance) for _ in range(400)), strict=True)
    for label in labels:
        for step in range(len(label)):
            if chance.random() < 0.01:
                label[step] = "open" if label[step] == "locked" else "locked"
    learned = learn(logs, labels, seconds=seconds, watch=print)
    print(learned)
    print(learned.predict(["fail", "fail", "logout", "fail", "login", "unlock"]))
    learned.save(folder)  # latchwork draw monitor; latchwork export monitor --onnx monitor.onnx
    return learned


if __name__ == "__main__":
    main()
