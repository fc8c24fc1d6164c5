"""Online learners, which process rows one by one: KOIL and the learners it is compared with."""

from steelyard.online.kernel_baselines import NORMA, RBP, Forgetron, Projectron
from steelyard.online.koil import KOIL, MultiKernelKOIL
from steelyard.online.linear_baselines import AROW, OAM, OPAUC, OnlinePerceptron

__all__ = [
    "AROW",
    "KOIL",
    "NORMA",
    "OAM",
    "OPAUC",
    "RBP",
    "Forgetron",
    "MultiKernelKOIL",
    "OnlinePerceptron",
    "Projectron",
]
