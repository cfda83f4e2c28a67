"""`unmask` and `python -m unmask`: the program itself."""

import os
import sys

from unmask import program


def main():
    os.execv(program(), [program(), *sys.argv[1:]])


if __name__ == "__main__":
    main()
