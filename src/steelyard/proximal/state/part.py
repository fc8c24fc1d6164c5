"""Some classes of statistics, several of them as one, as planes look at them: nothing is copied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from steelyard import _native
from steelyard._threads import num_threads
from steelyard.base import Label
from steelyard.proximal.state.statistics import ClassStatistics

__all__ = ["Part"]


class Part:
    """Some classes of statistics under other labels, several perhaps the same.

    Parameters
    ----------
    statistics : ClassStatistics
        Of all classes.
    labels : mapping of label to label
        For each class of the part, which has rows, its label here.
    """

    def __init__(self, statistics: ClassStatistics, labels: Mapping[Label, Label]) -> None:
        self._statistics = statistics
        self._members: defaultdict[Label, list[Label]] = defaultdict(list)
        for member, label in labels.items():
            self._members[label].append(member)

    @property
    def classes(self) -> list[Label]:
        """The labels, sorted."""
        return sorted(self._members)

    def view(self, labels: Sequence[Label]) -> _native.ExactView:
        """Counts, sums and matrices of some classes, in doubles that are rounded once."""
        members = [member for label in labels for member in self._members[label]]
        sums, slots = self._statistics.slots_of(members)
        places = iter(slots)
        groups = [[next(places) for _ in self._members[label]] for label in labels]
        return _native.ExactView(sums, groups, num_threads())
