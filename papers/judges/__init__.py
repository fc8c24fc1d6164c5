"""Functions that check the claims of the papers, one module per paper.

Each function takes the numbers of the experiments that its claim needs and returns a :class:`Finding`.
"""

from papers.judges import dcil, distributed, kba, koil, mhe
from papers.judges.finding import Finding, Kind

__all__ = ["Finding", "Kind", "dcil", "distributed", "kba", "koil", "mhe"]
