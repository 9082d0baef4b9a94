#!/bin/bash
# Description: the report in a browser without a screen: the contents of its DOM after its script has run, and that it draws something.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
browser=""
for b in chromium-headless-shell chromium chromium-browser google-chrome; do
	[ -n "$browser" ] || browser=$(command -v "$b")
done
[ -n "$browser" ] || skip "no chromium here (apt-get install chromium-headless-shell)"
unset DFSHIM_TRACE
env DFSHIM_TRACE="$T/tr" DFSHIM_BACKEND=host "${NCCL_RULES[@]}" DFSHIM_TIMEOUT_MS=400 DFSHIM_TIMEOUT_ACTION=abort \
	timeout "${LIMIT:-60}" "$S" --timeout 20 "$SRC/tests/deadlock/catalogue/SQ-01.txt" >"$T/log" 2>&1
"$B/dfshim" report -o "$T/r.html" "$T/tr" >"$T/said" || fail "report: $(cat "$T/said")"
# The page has styles for small screens and for dark mode.
grep -q '<meta name="viewport" content="width=device-width' "$T/r.html" && grep -q 'prefers-color-scheme:dark' "$T/r.html" ||
	fail "the page is for wide and bright screens only"
page() { timeout "${LIMIT:-100}" "$browser" --headless --no-sandbox --disable-gpu --window-size=1280,1400 "$@" "file://$T/r.html" 2>"$T/errors"; }
page --dump-dom >"$T/dom" || fail "the browser: $(tail -3 "$T/errors")"
for want in '<h1 class="bad">ORDER: ' '<dt>What to do' '<dt>Where the ranks part' '<svg' 'A#2 AllReduce' 'id="cycle"><svg' '<canvas id="tl" [^>]*data-rows="[1-9]' \
	'<td>r0-r1' '<h2>Evidence' 'can be cut here'; do
	grep -q "$want" "$T/dom" || fail "no $want in the DOM: $(head -c 3000 "$T/dom")"
done
# On a telephone the page is as wide as the screen; wide tables and graphs scroll by themselves.
sed 's,</body>,<script>document.title="wide "+document.documentElement.scrollWidth</script>&,' "$T/r.html" >"$T/phone.html"
timeout "${LIMIT:-100}" "$browser" --headless --no-sandbox --disable-gpu --window-size=390,2000 --dump-dom "file://$T/phone.html" >"$T/dom" 2>"$T/errors" ||
	fail "the browser: $(tail -3 "$T/errors")"
wide=$(sed -n 's,.*<title>wide \([0-9]*\)</title>.*,\1,p' "$T/dom")
[ "${wide:-9999}" -le 500 ] || fail "on a telephone's screen the page is ${wide:-?} pixels wide"
# Graphs and timeline follow the reader's colors: in dark mode neither has a white background.
sed 's,</body>,<script>{const d=x.getImageData(0\,0\,c.width\,c.height).data;let n=0;for(let i=0;i<d.length;i+=4)n+=d[i+3]>0\&\&d[i]+d[i+1]+d[i+2]>600;document.title="mostly "+(n>d.length/16?"bright":"dark")+" "+getComputedStyle(document.querySelector(".waits .paper")).fill}</script>&,' \
	"$T/r.html" >"$T/colors.html"
# colors PAPER OPTION...: checks the timeline's and the graph's background.
colors() {
	local want=$1
	shift
	timeout "${LIMIT:-100}" "$browser" --headless --no-sandbox --disable-gpu --window-size=1280,1400 "$@" --dump-dom "file://$T/colors.html" >"$T/dom" 2>"$T/errors" ||
		fail "the browser: $(tail -3 "$T/errors")"
	grep -q "<title>mostly $want</title>" "$T/dom" || fail "$*: not $want: $(grep -o '<title>mostly[^/]*' "$T/dom")"
}
colors "bright rgb(255, 255, 255)"
colors "dark rgb(24, 24, 24)" --force-dark-mode
page --screenshot="$T/r.png" >/dev/null || fail "no screenshot: $(tail -3 "$T/errors")"
[ "$(stat -c %s "$T/r.png")" -gt 20000 ] || fail "the screenshot is empty"
exit 0
