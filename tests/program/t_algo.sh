#!/bin/bash
# Description: `dfshim algo` from the command line: exit statuses, verdicts, translation to another form and back, bench and its file.
set -u
B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
T=${T:-$(mktemp -d)}
D="$B/dfshim algo"
bad=0
fail() {
	echo "FAILED: $*"
	bad=1
}
# status WANTED COMMAND...: the command must exit with this status.
status() {
	local want=$1 have
	shift
	"$@" >"$T/out" 2>"$T/err"
	have=$?
	[ $have -eq "$want" ] || fail "$* gave $have, not $want: $(cat "$T/out" "$T/err")"
}
says() { grep -qF -- "$1" "$T/out" "$T/err" || fail "does not say \"$1\": $(cat "$T/out" "$T/err")"; }

status 0 $D --help
status 2 $D
status 2 $D frobnicate
status 2 $D verify
status 2 $D run --rounds 0 allreduce-ring
status 2 $D show --ranks 5 --nodes 2 allreduce-ring
status 2 $D show --layout 3+ AllReduce/hier
status 2 $D show --layout 3+5 --ranks 8 AllReduce/hier
status 2 $D bench --layout 3+5
for k in AllReduce Broadcast Reduce AllGather ReduceScatter AlltoAll; do
	status 0 $D verify --layout 8+8+4 $k/hier
	says ": valid"
	status 0 $D run --layout 3+5+1 $k/hier --rounds 3
	says "3 runs right"
done
status 0 $D show --layout 3+5 AllReduce/hier
says "AllReduce hierarchical"
status 3 $D verify --layout 3+5 allreduce-hierarchical
says "equal size"
status 0 $D ls
says allreduce-hierarchical
says AlltoAll

status 1 $D verify "$T/missing.xml"
says "No such file"
printf '<algo name="x"\n' >"$T/cut.xml"
status 3 $D verify "$T/cut.xml"
says "$T/cut.xml:"
status 0 $D verify allreduce-ring
says "smallest slot count: 2"

for name in allreduce-ring allreduce-hierarchical alltonext reducescatter-ring alltoall-two-step; do
	status 0 $D compile $name --nodes 2 --gpus 3 -o "$T/a.dfp"
	status 0 $D verify "$T/a.dfp"
	says ": valid"
	status 0 $D compile $name --nodes 2 --gpus 3 --blocks peer --format rccl -o "$T/a.xml"
	status 0 $D verify --json "$T/a.xml"
	says '"valid":true'
	status 0 $D compile "$T/a.xml" -o "$T/b.dfp"
	status 0 $D compile "$T/b.dfp" -o "$T/c.dfp"
	cmp -s "$T/b.dfp" "$T/c.dfp" || fail "$name: the text form changes when it is read and written"
	status 0 $D run "$T/b.dfp" --rounds 5 --count 37 --seed 7
	[ $name = alltonext ] || says "5 runs right" # XML cannot express AllToNext's result
	says "5 runs "
done
status 0 $D run AllReduce/tree --ranks 5 --bytes 2M --op premulsum --rounds 3 --json
says '"ok":true'

# A step is missing. The error names line, rank, block, step and reason; the status is 3, and no
# file changes.
status 0 $D compile allreduce-ring --ranks 3 -o "$T/ring.dfp"
sed '0,/recvReduceCopySend/s/recvReduceCopySend i0 o0/recvReduceCopySend i1 o0/' "$T/ring.dfp" >"$T/wrong.dfp"
cmp -s "$T/ring.dfp" "$T/wrong.dfp" && fail "nothing was damaged"
status 3 $D verify "$T/wrong.dfp"
says "$T/wrong.dfp:"
says "rank "
says "step "
status 3 $D ls "$T/wrong.dfp"
says refused
status 3 $D run "$T/wrong.dfp"
status 1 $D compile allreduce-allpairs --ranks 4 --format msccl
says "try --blocks peer"

# With fewer slots than the program needs the executor deadlocks, as the verifier said.
status 3 $D run allreduce-ring --ranks 4 --slots 1 --rounds 1
says "deadlock with 1 slots"

# A program that is too large for the verifier is refused before it is built, with little memory. A
# sanitizer reserves more.
memory=1000000
[ "$SLOW" = 1 ] || memory=unlimited
status 3 bash -c "ulimit -v $memory; exec \"\$@\"" - $D verify allreduce-ring --gpus=4096
says "4096 ranks are too many to be verified: take fewer ranks"
status 3 $D compile allreduce-ring --gpus=4096 --channels=64
says "262144 chunks on each of 4096 ranks are too many"
status 3 $D verify AllReduce/ring --gpus=4096 --bytes=1000000000
says "steps for 4096 ranks are too many"
status 3 bash -c "ulimit -v $memory; exec \"\$@\"" - $D compile allreduce-ring --channels=64 --instances=64 --blocks=peer -o "$T/none.dfp"
says "491520 steps in 32768 blocks of 8 ranks are too many"
# A file that is too large is refused after it was read.
awk -v n=170000 'BEGIN {
	print "dfprog 1\nname large\nkind AllReduce\nranks 2\nchunks 2\nin_place both\nproto any"
	for (r = 0; r < 2; r++) {
		print "rank " r " in 2 out 2 scratch 0\n block 0"
		for (i = 0; i < n; i++) print "  send i" 1 - r " to " 1 - r
		for (i = 0; i < n; i++) print "  recv o" 1 - r " from " 1 - r
	}
}' >"$T/large.dfp"
for what in verify compile; do
	status 3 bash -c "ulimit -v $memory; exec \"\$@\"" - $D $what "$T/large.dfp"
	says "680000 steps in 2 blocks of 2 ranks are too many to be verified"
done
rm "$T/large.dfp"

status 2 $D bench --kind Send
status 2 $D bench --kind AllReduce,
status 2 $D bench --sizes 4,2
exit $bad
