"""The command line of a script with cases: CASE or all, --fixed, --list."""

import argparse
import inspect


def line_of(case):
    """Returns the line of a case that is marked "# the line"."""
    source, first = inspect.getsourcelines(case)
    return first + next(i for i, text in enumerate(source) if text.rstrip().endswith("# the line"))


def choose(doc, functions, row):
    """Returns the cases to run, and whether they run as fixed. For --list it prints each case's row and
    exits. row(function) is what stands behind the case's name."""
    cases = {f.__name__: f for f in functions}
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[*cases, "all"], nargs="?")
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for name, f in cases.items():
            print("|".join(map(str, (name, *row(f)))))
        raise SystemExit
    return (list(cases.values()) if args.case == "all" else [cases[args.case]]), args.fixed
