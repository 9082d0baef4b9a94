"""`python -m dfshim`, and the `dfshim` command of a Python environment: the program itself takes
over."""

import os
import sys

from dfshim import tool


def main():
    program = tool()
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"dfshim: {program} cannot be started: {error.strerror}. "
                 "Install the package again.")


if __name__ == "__main__":
    main()
