"""From labelled traces, or a teacher, to a machine and a network that is proved to be it."""

from latchwork.learning.learn import learn
from latchwork.learning.learned import Learned

__all__ = ["Learned", "learn"]
