"""The learners of the KOIL tables and their search grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from steelyard.kernels import Kernel
from steelyard.online import (
    KOIL,
    NORMA,
    OAM,
    OPAUC,
    RBP,
    Forgetron,
    MultiKernelKOIL,
    OnlinePerceptron,
    Projectron,
)

__all__ = ["COMPARED", "CONTENDERS", "MANY_KERNELS", "ONE_KERNEL", "Contender", "Params"]

Params = Mapping[str, float]

LEARNING_RATE = 0.01


def powers_of_two(first: int, last: int, step: int = 1) -> tuple[float, ...]:
    """Return 2**first, ..., 2**last."""
    return tuple(2.0**exponent for exponent in range(first, last + 1, step))


FULL = powers_of_two(-10, 10)


@dataclass(frozen=True)
class Contender:
    """A learner with the settings of the paper.

    `make` takes ``budget`` (of each class), ``seed`` and the searched parameters. Where the paper's range
    contains values that the learner cannot use (a share above 1, a step that overshoots), those are omitted.
    """

    name: str
    make: Callable[..., Any]
    grid: Mapping[str, tuple[float, ...]]
    grows: bool = False  # the cost per row grows with the number of rows, so the search uses fewer rows

    def candidates(self, step: int = 1) -> list[dict[str, float]]:
        """Return every combination of every ``step``-th value of the grid."""
        values = [own[::step] for own in self.grid.values()]
        return [dict(zip(self.grid, combination, strict=True)) for combination in product(*values)]


def _neighbors(budget: int) -> int:
    """Return a tenth of the budget, the best value according to the paper."""
    return max(1, budget // 10)


def one_kernel(
    loss: str,
    policy: str,
    budget: int | tuple[int, int],
    seed: int,
    n_neighbors: int | None = None,
    **params: Any,
) -> KOIL:
    """Return KOIL with one kernel and the settings of the thesis."""
    n_neighbors = n_neighbors or _neighbors(budget if isinstance(budget, int) else sum(budget) // 2)
    return KOIL(
        budget=budget, n_neighbors=n_neighbors, learning_rate=LEARNING_RATE,
        loss=loss, policy=policy, threshold="zero", random_state=seed, **params,
    )  # fmt: skip


def many_kernels(
    loss: str, policy: str, settings: Mapping[str, Any], budget: int, seed: int, **params: Any
) -> MultiKernelKOIL:
    """Return KOIL with sixteen kernels as written in the thesis, except for ``settings``."""
    own = {"n_neighbors": _neighbors(budget), **settings}
    return MultiKernelKOIL(
        budget=budget, learning_rate=LEARNING_RATE, loss=loss, policy=policy, threshold="zero",
        random_state=seed, **own, **params,
    )  # fmt: skip


def _perceptron(**_: int) -> OnlinePerceptron:
    return OnlinePerceptron()


def _oam(budget: int, seed: int, C: float) -> OAM:
    return OAM(C, budget=budget, random_state=seed)


def _opauc(regularization: float, **_: int) -> OPAUC:
    return OPAUC(LEARNING_RATE, regularization)


def _norma(budget: int, seed: int, **params: Any) -> NORMA:
    del budget, seed  # NORMA keeps all support vectors and is deterministic
    return NORMA(LEARNING_RATE, **params)


def _rbp(budget: int, seed: int, gamma: float) -> RBP:
    return RBP(2 * budget, gamma=gamma, random_state=seed)  # RBP has one buffer, KOIL one per class


def _forgetron(budget: int, gamma: float, **_: int) -> Forgetron:
    return Forgetron(2 * budget, gamma=gamma)


def _projectron(margin: bool, budget: int, seed: int, **params: Any) -> Projectron:
    del budget, seed
    return Projectron(margin=margin, **params)


_KERNEL_GRID = {"C": FULL, "gamma": FULL}
# With a threshold of 1 every vector is projected, because k(x, x) = 1 for a Gaussian kernel.
_PROJECTION_GRID = {"threshold": powers_of_two(-10, 0), "gamma": FULL}

ONE_KERNEL = (
    Contender("KOIL RS++", partial(one_kernel, "hinge", "reservoir++"), _KERNEL_GRID),
    Contender("KOIL FIFO++", partial(one_kernel, "hinge", "fifo++"), _KERNEL_GRID),
    Contender("KOIL2 RS++", partial(one_kernel, "smooth", "reservoir++"), _KERNEL_GRID),
    Contender("KOIL2 FIFO++", partial(one_kernel, "smooth", "fifo++"), _KERNEL_GRID),
)

COMPARED = (
    Contender("Perceptron", _perceptron, {}),
    Contender("OAM", _oam, {"C": FULL}),
    Contender("OPAUC", _opauc, {"regularization": powers_of_two(-10, 6)}),
    Contender(
        "NORMA",
        _norma,
        {
            "regularization": powers_of_two(-10, 6, 4),
            "nu": powers_of_two(-9, -1, 2),
            "gamma": FULL,
        },
        grows=True,
    ),
    Contender("RBP", _rbp, {"gamma": FULL}),
    Contender("Forgetron", _forgetron, {"gamma": FULL}),
    Contender("Projectron", partial(_projectron, False), _PROJECTION_GRID, grows=True),
    Contender("Projectron++", partial(_projectron, True), _PROJECTION_GRID, grows=True),
)

# Deviations of the authors' program for several kernels from the formulas of the thesis.
PROGRAM_SETTINGS: dict[str, dict[str, Any]] = {
    "scores are added": {"combine": "score"},
    "weights decay": {"decay": True},
    "kernel weights without C": {"weight_rate": LEARNING_RATE},
    "five neighbours": {"n_neighbors": 5},
    "widths as gamma": {
        "kernels": [Kernel("polynomial", gamma=1.0, degree=degree) for degree in (1, 2, 3)]
        + [Kernel("rbf", gamma=gamma) for gamma in powers_of_two(-6, 6)]
    },
}
PROGRAM = {name: value for own in PROGRAM_SETTINGS.values() for name, value in own.items()}
AS_WRITTEN = " as written"

# Several kernels as in the authors' program, and as written in the thesis.
MANY_KERNELS = tuple(
    Contender(f"{name} {policy}{suffix}", partial(many_kernels, loss, word, settings), {"C": FULL})
    for settings, suffix in ((PROGRAM, ""), ({}, AS_WRITTEN))
    for name, loss in (("MKL", "hinge"), ("MKL2", "smooth"))
    for policy, word in (("RS++", "reservoir++"), ("FIFO++", "fifo++"))
)

CONTENDERS = {contender.name: contender for contender in ONE_KERNEL + COMPARED + MANY_KERNELS}
