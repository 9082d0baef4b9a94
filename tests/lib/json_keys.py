"""Compares JSON of dfshim with docs/json.md: every key is listed there, has the type of its row, and is present unless its
row says "optional".

    json_keys.py SECTION FILE...      every JSON value of the files, which may hold several
    json_keys.py --unseen SECTION FILE...     prints the keys of the section that no value has

A problem is a line on standard output and status 1.
"""
import json
import os
import re
import sys

DOC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/json.md")


def read_tables(path):
    """Returns {section: {key path: type}} and {record type: types of its fields} (the table of
    `show`)."""
    sections, fields, names = {}, {}, []
    with open(path, encoding="utf-8") as doc:
        for line in doc:
            if line.startswith("## "):
                names = [name.strip(" `") for name in line[3:].strip().split(",")]
                for name in names:
                    sections[name] = {}
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if len(cells) == 3 and cells[0].startswith("`"):
                for name in names:
                    sections[name][cells[0].strip("`")] = cells[1]
            elif len(cells) == 5 and cells[0].startswith("`"):
                fields[cells[0].strip("`")] = ["hex" if cell.startswith("hex") else "number" for cell in cells[1:]]
    return sections, fields


class Checker:
    def __init__(self, section):
        self.sections, self.fields = read_tables(DOC)
        self.section, self.seen, self.problems = section, set(), []

    def problem(self, path, text):
        self.problems.append(f"{self.section}: {path or 'the value'}: {text}")

    def row_of(self, rows, path, key):
        """Returns the row of a member: its own, or the row * that stands for any name. Returns None if
        there is neither."""
        for name in (key, "*"):
            row = f"{path}.{name}".lstrip(".")
            if any(at == row or at.startswith((row + ".", row + "[")) for at in rows):
                return row
        return None

    def leaf(self, path, kind, value):
        if "or null" in kind and value is None:
            return
        word = re.split(r"[, ]", kind)[0]
        good = {
            "number": lambda: isinstance(value, (int, float)) and not isinstance(value, bool),
            "hex": lambda: isinstance(value, str) and re.fullmatch(r"0x(0|[1-9a-f][0-9a-f]{0,15})", value),
            "text": lambda: isinstance(value, str),
            "boolean": lambda: isinstance(value, bool),
            "setting": lambda: True,
        }
        if word not in good:
            self.problem(path, f"docs/json.md has no type '{word}'")
        elif not good[word]():
            self.problem(path, f"{json.dumps(value)[:60]} is no {kind}")

    def value(self, rows, path, value):
        self.seen.add(path)
        kind = rows.get(path, "")
        word = re.split(r"[, ]", kind)[0]
        if word in self.sections and value is not None:
            self.value(self.sections[word], "", value)
        elif isinstance(value, dict) and (not kind or word == "object"):
            for key, member in value.items():
                row = self.row_of(rows, path, key)
                if row is None or (rows.get(row, "").startswith("setting") and key not in settings()):
                    self.problem(f"{path}.{key}".lstrip("."), "not in docs/json.md")
                elif rows.get(row) == "field":
                    which = ["op", "a", "b", "c"].index(key)
                    self.seen.add(row)
                    if value["type"] in self.fields:
                        self.leaf(f"{value['type']}: {row}", self.fields[value["type"]][which], member)
                    else:
                        self.problem(value["type"], "no such row in the table of records")
                else:
                    self.value(rows, row, member)
            self.missing(rows, path, value)
        elif isinstance(value, list) and (not kind or word == "array"):
            for member in value:
                self.value(rows, path + "[]", member)
        else:
            self.leaf(path, kind or "container", value)

    def missing(self, rows, path, value):
        prefix = path + "." if path else ""
        for row, kind in rows.items():
            key = re.split(r"[.\[]", row[len(prefix):])[0]
            if row.startswith(prefix) and key not in ("*", "") and key not in value:
                own = rows.get(prefix + key, kind)
                if "optional" not in own:
                    self.problem(prefix + key, "missing")


def settings():
    """Returns the keys of a configuration of `dfshim sim`."""
    with open(os.path.join(os.path.dirname(DOC), "sim.schema.json"), encoding="utf-8") as schema:
        return json.load(schema)["properties"]


def values(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        yield value


def main(argv):
    unseen = argv[:1] == ["--unseen"]
    section, files = argv[unseen], argv[unseen + 1:]
    checker = Checker(section)
    if not checker.sections.get(section):
        print(f"docs/json.md has no section '{section}'")
        return 1
    for path in files:
        nr = 0
        for value in values(path):
            checker.value(checker.sections[section], "", value)
            nr += 1
        if not nr:
            checker.problem("", f"{path} is empty")
    if unseen:
        for row in checker.sections[section]:
            if row not in checker.seen:
                print(row)
        return 0
    for line in sorted(set(checker.problems))[:40]:
        print(line)
    return 1 if checker.problems else 0


sys.exit(main(sys.argv[1:]))
