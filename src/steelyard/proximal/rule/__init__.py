"""How statistics become planes: the linear system, its solution, the cut, and the choice of C."""
