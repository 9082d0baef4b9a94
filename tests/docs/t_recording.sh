#!/bin/bash
# Description: scripts/recording.py draws the output of commands in their order, wrapped, without escape sequences, as XML that
# shows the last line last; the recording in README shows commands of README.
set -u
. "$SRC/tests/lib/clients.sh"

"$SRC/scripts/recording.py" --columns 20 --rows 3 --pause 0 "$T/r.svg" "printf 'one\\n\\033[31m<two>\\033[0m\\n'; false" \
	"seq -s , 1 12; printf last" 2>"$T/err" || fail "$(cat "$T/err")"
[ "$(cut -c 1-9 "$T/err")" = "status 1:
status 0:" ] || fail "statuses: $(cat "$T/err")"
python3 - "$T/r.svg" "$SRC" <<'PY' || fail "$(cat "$T/r.svg")"
import re, sys
import xml.etree.ElementTree as et
ns = "{http://www.w3.org/2000/svg}"
def texts(path, kind):
    return [t.text for t in et.parse(path).iter(ns + "text") if t.get("class") == kind]
assert texts(sys.argv[1], "o") == ["one", "<two>", "1,2,3,4,5,6,7,8,9,10", ",11,12", "last"], texts(sys.argv[1], "o")
style = et.parse(sys.argv[1]).find(ns + "style").text
lines = [int(y) for y in re.findall(r"translateY\((-?\d+)px\)", style)]
step = 18
cover = max(lines) // step
assert min(lines) == -(cover - 3) * step, lines
readme = open(sys.argv[2] + "/README.md").read()
commands = [c[2:] for c in texts(sys.argv[2] + "/docs/images/recording.svg", "c")]
assert len(commands) == 3 and all(c in readme for c in commands), commands
assert not any("reading traces" in (t or "") for t in texts(sys.argv[2] + "/docs/images/recording.svg", "o"))
PY
"$SRC/scripts/recording.py" --rows 0 "$T/r.svg" true 2>"$T/err" && fail "no error for --rows 0"
grep -q -- "--rows are at least 1" "$T/err" || fail "$(cat "$T/err")"
"$SRC/scripts/recording.py" "$T/absent/r.svg" true 2>"$T/err" && fail "no error for an absent folder"
grep -q "absent/r.svg" "$T/err" || fail "$(cat "$T/err")"
exit 0
