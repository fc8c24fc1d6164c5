"""Learners that take rows one by one: KOIL, and the online learners it is compared with."""

from steelyard.online.forgetron import Forgetron
from steelyard.online.koil import KOIL
from steelyard.online.multi_kernel import MultiKernelKOIL
from steelyard.online.norma import NORMA
from steelyard.online.oam import OAM
from steelyard.online.opauc import OPAUC
from steelyard.online.perceptron import OnlinePerceptron
from steelyard.online.projectron import Projectron
from steelyard.online.rbp import RBP

__all__ = [
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
