"""Entry point of ``python -m steelyard``: the command line."""

from steelyard.cli import main

if __name__ == "__main__":
    main(prog_name="python -m steelyard")
