#!/bin/bash
# Checks PyTorch on the CPU backend: operators, jobs, examples, and PyTorch's own distributed suite.
#
#   scripts/check_torch.sh [--all | --core] [PART...]
#
#   PART: operators ddp fork ranks stub plan sync ci reports serving raised recorder jobs lanes
#   backend cookbook input ends others suite
#
# TORCH_PYTHON: a Python with a CUDA build of PyTorch, NumPy and expecttest. nccl4py and CuPy are
# tried, too, if it has them. Without TORCH_PYTHON the packages are installed into build/venv, once
# (some gigabytes). --all: the whole suite with 2, 3 and 4 ranks (WORLDS), else a part of it.
# --core: only checks that fit into 5 minutes (operators, ddp, fork, plan, sync, input, ends,
# others, some tests of the suite with 2 ranks). If PyTorch cannot be installed, --core says so and
# ends with 77. Prints a line for each check. The last line counts them.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
part=(--every 9 --limit 120) worlds=${WORLDS:-2 3 4} passed=0 failed=0 skipped=0
known="operators ddp fork ranks stub plan sync ci reports serving raised recorder jobs lanes \
backend cookbook input ends others suite"
usual=$known no_torch=1
case ${1-} in
--all)
	part=()
	shift
	;;
--core)
	part=(--every 31 --limit 60) worlds=2 \
		usual="operators ddp fork plan sync input ends others suite" no_torch=77
	shift
	;;
esac
parts=" ${*:-$usual} "
for p in $parts; do
	[[ " $known " == *" $p "* ]] || {
		echo "check_torch.sh: unknown part '$p'" >&2
		exit 2
	}
done
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
py=${TORCH_PYTHON:-$(realpath -m "$B/venv")/bin/python}
if [ -z "${TORCH_PYTHON-}" ] && ! "$py" -c 'import torch, numpy, expecttest' 2>/dev/null; then
	echo "installing PyTorch into $B/venv"
	python3 -m venv "$B/venv" && "$py" -m pip install -q --retries 1 --timeout 15 torch numpy \
		expecttest nccl4py 2>"$T/log"
	if [ $? != 0 ]; then
		echo "skipped: PyTorch cannot be installed ($(grep -m1 ^ERROR "$T/log"))"
		exit $no_torch
	fi
fi
"$py" -c 'import torch, sys
print("PyTorch", torch.__version__)
sys.exit(torch.version.cuda is None)' || {
	echo "this PyTorch is built without CUDA: install a CUDA build (on Linux x86-64" \
		"\`pip install torch\` is one)"
	exit 1
}
"$py" -c 'import numpy, expecttest' || {
	echo "$py lacks what the tests need: pip install numpy expecttest"
	exit 1
}
export PYTHONUNBUFFERED=1
unset DFSHIM_TRACE

wants() { [[ $parts == *" $1 "* ]]; }
# check NAME STATUS COMMAND...: prints one line, and on failure the end of the output
check() {
	local name=$1 want=$2 rc begun=$SECONDS
	shift 2
	timeout -k 5 "${LIMIT:-200}" "$@" >"$T/log" 2>&1
	rc=$?
	took=$((SECONDS - begun))
	if [[ " $want " == *" $rc "* ]]; then
		passed=$((passed + 1))
		echo "ok   $name ($took s)"
		return 0
	fi
	failed=$((failed + 1))
	echo "FAIL $name: status $rc, not $want"
	tail -25 "$T/log" | sed 's/^/     | /'
	return 1
}
# says NAME PATTERN: checks that the output of the last check has the pattern
says() {
	if grep -qE "$2" "$T/log"; then
		passed=$((passed + 1))
		echo "ok   $1"
		return 0
	else
		failed=$((failed + 1))
		echo "FAIL $1: no line '$2'"
		tail -25 "$T/log" | sed 's/^/     | /'
		return 1
	fi
}
run() { # NAME STATUS OPTIONS-OF-RUN... -- COMMAND...
	local name=$1 want=$2
	shift 2
	check "$name" "$want" "$B/dfshim" run "$@"
}
if wants operators; then
	run "operators" 0 --host=2 -- "$py" tests/torch/operators.py
fi
if wants ddp; then
	run "ddp, dfshim run -n 2" 0 --host -n 2 -- "$py" tests/torch/ddp.py
	run "ddp, torchrun, 4 ranks" 0 --host -- "$py" -m torch.distributed.run --standalone \
		--nproc-per-node 4 tests/torch/ddp.py
	run "ddp, nccl's rules" 0 --host -n 2 --rules nccl --timeout 30 -- "$py" tests/torch/ddp.py
fi
if wants fork; then
	for how in forked separate; do
		option=$([ $how = separate ] && echo --no-fork)
		# shellcheck disable=SC2086 # words
		OUT=$T/$how MASTER_PORT=29512 run "fork: what ranks see, $how" 0 --host -n 3 \
			$option -- "$py" tests/cli/fork_probe.py
		# shellcheck disable=SC2086 # words
		run "fork: DDP and DataLoader, 8 ranks, $how" 0 --host -n 8 $option -- "$py" \
			tests/torch/fork.py $how
		# shellcheck disable=SC2086 # words
		run "fork: torchrun, 3 ranks, $how" 0 --host $option -- "$py" -m \
			torch.distributed.run --standalone --nproc-per-node 3 \
			tests/torch/fork.py $how
	done
	for rank in 0 1 2; do
		sed -i 's/0x[0-9a-f]*/0x/g' "$T/forked.$rank" "$T/separate.$rank"
		check "fork: rank $rank sees the same" 0 diff "$T/forked.$rank" "$T/separate.$rank"
	done
	check "fork: ranks have random numbers of their own" 1 grep -q . <(sort "$T/forked.own" |
		uniq -d)
fi
if wants ranks; then
	every=$([ ${#part[@]} = 0 ] && echo 1 || echo 9)
	for how in forked separate; do
		option=$([ $how = separate ] && echo --no-fork)
		mkdir "$T/ranks-$how"
		# shellcheck disable=SC2086 # words
		LIMIT=$([ "$every" = 1 ] && echo 3600 || echo 900) TORCH_DIST_USE_NCCL2=0 \
			PYTORCH_PRINT_REPRO_ON_FAILURE=0 \
			run "ranks: PyTorch's suite, $how" 0 --host=3 -n 3 $option -- "$py" \
			tests/torch/ranks.py "$T/ranks-$how" --how $how \
			--known docs/pytorch-suite.txt --every "$every"
	done
	for rank in 0 1 2; do
		check "ranks: on rank $rank its tests end alike" 0 diff "$T/ranks-forked/$rank" \
			"$T/ranks-separate/$rank"
	done
	check "ranks: at least 15 tests have passed" 0 test \
		"$(grep -c '^ok ' "$T/ranks-forked/0")" -ge 15
fi
if wants stub; then
	LIMIT=300 check "stub: values" 0 env DFSHIM_HOST_STUB_VALUE=0.5 DFSHIM_HOST_STUB_STEPS=3 \
		"$B/dfshim" run --host --stub -n 2 -- \
		"$py" tests/torch/stub.py values
	check "stub: a value that is no number" 2 env DFSHIM_HOST_STUB_VALUE=much "$B/dfshim" run \
		--host --stub -- "$py" -c "import torch"
	says "its name" '^dfshim: DFSHIM_HOST_STUB_VALUE=much: not a number'
	small=(--dim 64 --hidden 128 --heads 4 --kv_heads 2 --layers 4 --vocab 128 --length 32)
	LIMIT=300 run "stub: a small Llama, computed" 0 --host --trace "$T/computed" -n 8 -- "$py" \
		docs/ci/llama.py "${small[@]}"
	LIMIT=300 run "stub: the same, skipped" 0 --host --stub --trace "$T/skipped" -n 8 -- "$py" \
		docs/ci/llama.py "${small[@]}"
	says "its loss" '^step 0: loss 1.000'
	DFSHIM=$B/dfshim check "stub: its communication is the same" 0 "$py" tests/torch/stub.py \
		same "$T/computed" "$T/skipped"
	LIMIT=300 run "stub: a larger one, skipped" 0 --host --stub --trace "$T/larger" -n 8 -- \
		"$py" docs/ci/llama.py "${small[@]}" \
		--dim 1024 --hidden 2048 --vocab 1024
	DFSHIM=$B/dfshim check "stub: its communication differs in sizes only" 0 "$py" \
		tests/torch/stub.py alike "$T/computed" "$T/larger"
	DFSHIM=$B/dfshim check "stub: sizes are compared" 1 "$py" tests/torch/stub.py same \
		"$T/computed" "$T/larger"
	for bug in send branch groups; do
		LIMIT=300 check "stub: a bug, $bug" "10 12 13 20 21" "$B/dfshim" ci --stub -n 8 \
			--timeout 20 -- "$py" tests/torch/stub.py $bug "${small[@]}"
		says "its lines" '(llama|stub).py:[0-9]+ (main|with_branch|with_groups)'
	done
	LIMIT=300 check "stub: a bug, torchrun" "10 12 13 20 21" "$B/dfshim" ci -n 8 --stub \
		--timeout 20 -- "$py" -m torch.distributed.run \
		--standalone tests/torch/stub.py branch "${small[@]}"
	says "its lines" '(llama|stub).py:[0-9]+ (main|with_branch)'
fi
if wants plan; then
	for job in gate torch networks; do
		LIMIT=400 check "dfshim.deft, t_plan_$job" 0 env TORCH_PYTHON="$py" tests/run.sh \
			plan/t_plan_$job
		says "it was not skipped" '^1 passed, 0 failed'
	done
fi
if wants sync; then
	# The groups are new, a thread of autograd sleeps, or there are two nodes. Then follow the
	# cases that must hang.
	for form in "" --cold --backward "--cold --backward"; do
		# shellcheck disable=SC2086 # words
		LIMIT=300 run "sync: opposite orders${form:+, $form}" 0 --host=2 -n 2 --timeout 60 \
			-- "$py" tests/torch/sync.py $form
	done
	# Threads of autograd do not prevent the proof of a cycle. DFSHIM_RELEASE_MS=0 switches off
	# releases of cycles that are only likely.
	for form in --backward "--cold --backward"; do
		# shellcheck disable=SC2086 # words
		LIMIT=300 check "sync: proved, $form" 0 env DFSHIM_RELEASE_MS=0 "$B/dfshim" run \
			--host=2 -n 2 --timeout 60 -- \
			"$py" tests/torch/sync.py $form device later each_step own_group
	done
	for form in "" "--cold --backward"; do
		# shellcheck disable=SC2086 # words
		LIMIT=300 check "sync: opposite orders, two nodes${form:+, $form}" 0 env \
			DFSHIM_HOST_NODE_DEVICES=1 "$B/dfshim" run --host=2 -n 2 \
			--timeout 60 -- "$py" tests/torch/sync.py $form
	done
	for case in stream:13:DATA barrier:13:DATA models:12:SYNC; do
		IFS=: read -r name status word <<<"$case"
		run "sync: $name hangs by right" "$status" --host=2 -n 2 --timeout 10 -- "$py" \
			tests/torch/sync.py "$name"
		says "its verdict" "^$word: "
	done
	says "why it is not released" \
		'^Remedy: released only with DFSHIM_RELEASE=device or all: other work'
fi
if wants ci; then
	check "ci: right" 0 "$B/dfshim" ci -n 2 -- "$py" tests/torch/ddp.py
	# Right programs must stay right: all of them with --all, else in short runs those that
	# dfshim once reported by mistake.
	steps=60 few="."
	[ ${#part[@]} = 0 ] || steps=25 few="^(ddp_eval|ddp_accumulate|fsdp2) "
	while read -r case ranks; do
		LIMIT=400 check "ci: right, $case" 0 "$B/dfshim" ci -n "$ranks" -- "$py" \
			tests/torch/right.py "$case" --steps $steps </dev/null
		says "nothing is found" '^no potential deadlock found in'
	done < <("$py" tests/torch/right.py --list | grep -E "$few")
	for package in lightning transformers accelerate deepspeed peft; do
		for case in $([ ${#part[@]} = 0 ] &&
			"$py" tests/torch/frameworks.py --list $package); do
			LIMIT=400 check "ci: right, $package $case" 0 "$B/dfshim" ci --timeout 60 \
				-- "$py" -m torch.distributed.run \
				--standalone --nproc-per-node 2 tests/torch/frameworks.py $case
			says "nothing is found" '^no potential deadlock found in'
		done
	done
	check "ci: a step's all_reduce is left out" "20 21" "$B/dfshim" ci -n 2 --timeout 10 -- \
		"$py" tests/torch/ddp.py --hang
	says "its line" 'ddp.py:[0-9]+ average'
	check "ci: a branch that depends on the rank" 20 "$B/dfshim" ci -n 2 --timeout 10 -- "$py" \
		docs/ci/branch.py
	says "its line" 'branch.py:[0-9]+'
	check "ci: sends and receives that cross" 14 "$B/dfshim" ci -n 2 --timeout 10 --report \
		"$T/ci.html" -- "$py" docs/ci/pipeline.py
	says "it is confirmed" "^Replayed from the start by NCCL's rules it hangs"
	check "ci: its steps are in the report" 0 grep -q 'An execution that deadlocks' "$T/ci.html"
	check "ci: two groups, a synchronisation between" "10 12" "$B/dfshim" ci -n 2 --timeout 10 \
		-- "$py" docs/ci/groups.py
	says "its line" 'groups.py:[0-9]+'
fi
if wants reports; then
	# A case that hangs ends with the status of its word. The first line of the report has the
	# word, or the text that stands for SLOW. With --all the results are also a table for
	# docs/evaluation.md.
	reports=0 words=0 lines=0
	while IFS='|' read -r case ranks nccl ours line report cause; do
		reports=$((reports + 1)) row="| $report | $cause |"
		for rules in nccl dfshim; do
			word=$([ $rules = nccl ] && echo "$nccl" || echo "$ours") status=""
			for w in $word; do
				case $w in OK) status+=" 0" ;; ORDER) status+=" 10" ;;
				SYNC) status+=" 12" ;; DATA) status+=" 13" ;;
				MISSING) status+=" 20" ;; MISMATCH) status+=" 21" ;;
				INIT) status+=" 22" ;; esac
			done
			run "report $case, rules $rules: $word" "$status" --host -n "$ranks" \
				--rules $rules --timeout 8 -- \
				"$py" tests/torch/reports.py "$case" </dev/null &&
				words=$((words + 1))
			found=$(grep '^dfshim run: stopped for a hang, status [0-9]' "$T/log" |
				sed -nE 's/^[^:]*:[^:]*: ([A-Z_]+): .*/\1/p' | tail -1)
			row+=" ${found:-finishes}, $took s |"
			[ $rules = nccl ] || continue
			how=no
			says "the line of its fix" "(reports.py:|[ -])$line [\"a-z<]" &&
				lines=$((lines + 1)) how="decided by"
			! grep -qE "reports.py:$line [a-z<]" "$T/log" || how=yes
		done
		echo "$row $how |" >>"$T/rows"
		[ ${#part[@]} = 0 ] || break
	done < <("$py" tests/torch/reports.py --list)
	if [ ${#part[@]} = 0 ]; then
		{
			version=$("$py" -c 'import torch; print(torch.__version__)')
			commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
			echo "Measured $(date -u +%F) at $commit on $(nproc) processors with" \
				"PyTorch $version: $words of $((2 * reports)) words are right," \
				"and the line of the fix is named for $lines of $reports reports."
			echo
			echo "| report | cause | by NCCL's rules | under dfshim | line |"
			echo "|---|---|---|---|---|"
			cat "$T/rows"
		} >"$B/reports.md"
		echo "table: $B/reports.md" \
			"(scripts/insert.sh docs/evaluation.md reports $B/reports.md)"
	fi
	run "the reports, as their threads mended them" 0 --host -n 2 --rules nccl --timeout 60 -- \
		"$py" tests/torch/reports.py all --fixed
fi
if wants serving; then
	while IFS='|' read -r case nccl ours rank line; do
		for rules in nccl dfshim; do
			word=$([ $rules = nccl ] && echo "$nccl" || echo "$ours")
			case $word in OK) status=0 ;; ORDER) status=10 ;; MISSING) status=20 ;; \
				MISMATCH) status=21 ;; esac
			run "serving $case, rules $rules: $word" $status --host -n 2 --rules \
				$rules --timeout 8 -- \
				"$py" tests/torch/serving.py "$case" </dev/null
			[ "$word" != OK ] || continue
			says "its word and rank" "^$word: .*\br$rank\b"
			says "that rank's line" \
				"\br$rank\b.*serving.py:$line ([a-z]+ <- serving.py:[0-9]+ )?$case"
		done
	done < <("$py" tests/torch/serving.py --list)
	run "serving: all of them, fixed" 0 --host -n 2 --rules nccl --timeout 60 -- "$py" \
		tests/torch/serving.py all --fixed
fi
if wants raised; then
	# DFSHIM_TIMEOUT_ACTION=abort: a hang becomes an error of PyTorch with the verdict in its
	# text. dfshim revokes the communicators, as in front of NVIDIA's NCCL, or libdfnccl.so ends
	# them on all ranks: only one rank is sure to have the verdict before its error.
	text="dfshim ends communicators of this process: MISMATCH: .* differs in count"
	for how in revoked ended; do
		export DFSHIM_TIMEOUT_ACTION=abort
		end=("$B/dfshim" run --host -n 2 --rules nccl) ranks="[01]"
		[ $how = ended ] || ranks="0 1" \
			end=(env "LD_PRELOAD=$B/tests/deadlock/no_stop.so $B/libdfnccl.so"
				"$B/dfshim" run --host -n 2 --mode trace)
		for where in next wait; do
			blocking=$([ $where = wait ] && echo 1 || echo 0)
			TORCH_DIST_USE_NCCL2=0 TORCH_NCCL_BLOCKING_WAIT=$blocking \
				check "raised: $how, $where" 21 "${end[@]}" -- \
				"$py" tests/torch/raised.py $where
			for rank in $ranks; do
				says "the error of rank $rank, with the verdict" \
					"^rank $rank raised DistBackendError: .*$text"
			done
		done
		# PyTorch's newer process group prints the error and aborts the process.
		check "raised: $how, the default process group" 21 "${end[@]}" -- \
			"$py" tests/torch/raised.py
		says "the verdict in its error" "(Last Error: |raised DistBackendError: .*)$text"
		cp "$T/log" "$T/raised"
		check "no rank crashes" 1 grep -E 'signal 11|exception not rethrown' "$T/raised"
		unset DFSHIM_TIMEOUT_ACTION
	done
fi
if wants recorder; then
	# PyTorch's Flight Recorder and dfshim each record one hang.
	mkdir "$T/dumps"
	line=$(grep -n '# the line$' tests/torch/recorder.py)
	TORCH_NCCL_TRACE_BUFFER_SIZE=200 run "recorder: a hang, both record it" 20 --host -n 2 \
		--rules nccl --timeout 25 --trace "$T/recorded" -- \
		"$py" tests/torch/recorder.py "$T/dumps"
	says "dfshim's verdict while the job runs" \
		'^MISSING: .*#3 waits for r1, which has not issued it'
	for of in recorded dumps; do
		check "recorder: the verdict on the $of" 20 "$B/dfshim" check "$T/$of"
		says "the missing call" '^MISSING: .*#3 waits for r1, which has not issued it'
		says "its line" "recorder.py:${line%%:*}"
	done
fi
if wants jobs; then
	for case in ddp fsdp2 tensor_parallel pipeline ring graphs groups end collectives eager; do
		run "job $case" 0 --host=1 -- "$py" -m torch.distributed.run --standalone \
			--nproc-per-node "${RANKS:-2}" \
			tests/gpu/torch_jobs.py $case
	done
fi
if wants lanes; then
	# NCCL's own kernels take one rank for each device.
	for form in "" "--cold --backward"; do
		# shellcheck disable=SC2086 # words
		LIMIT=300 run "lanes: opposite orders${form:+, $form}" 0 --host=2 --executor nccl \
			-n 2 --timeout 60 -- "$py" tests/torch/sync.py $form
	done
	for case in stream:13:DATA barrier:13:DATA models:12:SYNC; do
		IFS=: read -r name status word <<<"$case"
		run "lanes: $name hangs by right" "$status" --host=2 --executor nccl -n 2 \
			--timeout 10 -- "$py" tests/torch/sync.py "$name"
		says "its verdict" "^$word: "
	done
	for case in ddp fsdp2 tensor_parallel pipeline ring groups end collectives eager; do
		run "lanes: job $case" 0 --host="${RANKS:-2}" --executor nccl -- "$py" -m \
			torch.distributed.run --standalone \
			--nproc-per-node "${RANKS:-2}" tests/gpu/torch_jobs.py $case --device own
	done
fi
if wants backend; then
	# The runtime of the tests has the form of CUDA 13.
	if [ -e "$B/tests/cuda/runtime/libcudart.so.13" ] &&
		"$py" -c 'import torch, sys; sys.exit(torch.version.cuda[:3] != "13.")'; then
		few=(CASES="ddp graphs groups")
		[ ${#part[@]} -gt 0 ] || few=()
		LIMIT=1200 check "jobs on the GPU backend, without a GPU" 0 env RANKS=2 \
			"${few[@]}" TORCH_PYTHON="$py" tests/run.sh cuda/t_torch
		says "they were not skipped" '^1 passed, 0 failed'
	else
		skipped=$((skipped + 1))
		echo "skip jobs on the GPU backend: no runtime of the tests (it takes nvcc)," \
			"or not a PyTorch for CUDA 13"
	fi
fi
if wants cookbook; then
	LIMIT=1800 check "cookbook: the programs, and what the page says of them" 0 env B="$B" \
		TORCH_PYTHON="$py" scripts/cookbook.sh --check
	# One page has another verdict for a program, and one page shows another program.
	sed -e 's/^MISMATCH: /ORDER: /' -e 's/^    time.sleep(1000)$/    time.sleep(1)/' \
		docs/cookbook.md >"$T/page.md"
	for name in mismatch unused; do
		check "cookbook: $name differs" 1 env B="$B" TORCH_PYTHON="$py" PAGE="$T/page.md" \
			scripts/cookbook.sh --check $name
		how="shows another program"
		[ $name = unused ] || how="has another verdict"
		says "how" "cookbook: $name: .*page.md $how"
	done
fi
if wants input; then
	run "more ranks than devices" 1 --host=1 -n 2 -- "$py" tests/torch/ddp.py
	says "it is said" 'invalid device ordinal'
	run "no memory left" 1 --host -- \
		"$py" -c 'import torch; torch.empty(1 << 60, device="cuda")'
	says "as CUDA says it" 'OutOfMemoryError'
	run "memory that is used up" 0 --host=32 -- "$py" -c '
import torch
kept = []
try:
    while True:
        kept.append(torch.ones(1 << 24, device="cuda"))
except torch.OutOfMemoryError:
    print("full after", len(kept))
kept.clear()
assert torch.ones(1 << 24, device="cuda").sum().item() == 1 << 24'
	says "an exception, and there is memory when it is free" '^full after [1-9]'
	run "no torch" 1 --host -- "$py" -S -c 'import torch'
	mkdir -p "$T/cpu/torch"
	printf '__version__ = "2.0+cpu"\nclass version:\n    cuda = None\n' \
		>"$T/cpu/torch/__init__.py"
	run "a torch without CUDA" 0 --host -- \
		"$py" -c "import sys; sys.path.insert(0, '$T/cpu'); import torch"
	says "which one to install" 'built without CUDA.*pip install torch'
	if "$py" -c 'import triton' 2>/dev/null; then
		run "a Triton kernel" 1 --host -- "$py" tests/torch/kernel.py
		says "its name, and what skips it" \
			'Triton kernel double cannot run on the CPU backend; DFSHIM_HOST_STUB=1'
		check "kernels skipped" 0 env DFSHIM_HOST_STUB=1 "$B/dfshim" run --host -- \
			"$py" tests/torch/kernel.py
		says "the result behind them" 'skipped; the sum is 8'
	fi
fi
if wants ends; then
	apart=tests/lib/apart.sh
	ddp=("$B/dfshim" run --host -n 2 --grace 60 -- "$py" tests/torch/ddp.py)
	torchrun=("$B/dfshim" run --host -- "$py" -m torch.distributed.run --standalone
		--nproc-per-node 2 tests/torch/ddp.py)
	check "a rank is killed, dfshim run -n 2" 137 $apart "${ddp[@]}" --killed
	says "the other's error" 'rank0.*remote process exited'
	says "which one it was" 'rank 1 ended by signal 9'
	check "a rank is killed, torchrun" 1 $apart "${torchrun[@]}" --killed
	says "which one it was" 'exitcode: -9\) local_rank: 1'
	check "no memory for one rank" "1 134" $apart "${ddp[@]}" --memory
	says "its error" 'rank1.*OutOfMemoryError'
	says "the other's error" 'rank0.*remote process exited'
	check "interrupted, dfshim run -n 2" "130 143" $apart --interrupt "one is left out" \
		"$T/log" "$B/dfshim" run --host -n 2 -- "$py" tests/torch/ddp.py --hang
	check "interrupted, torchrun" 1 $apart --interrupt "one is left out" "$T/log" \
		"${torchrun[@]}" --hang
	says "by what" 'SignalException.*signal: 2'
	LIMIT=60 check "a rank ends before its operators" 0 $apart "${ddp[@]}" --unfinished
	LIMIT=60 check "it ends of an error, and does not wait for the others" 1 $apart \
		"$B/dfshim" run --host -n 2 -- "$py" tests/torch/ddp.py --left --error
	says "its error" 'rank0.*ValueError: of its own'
	check "interrupted while it waits for its operators" "130 143" $apart --interrupt \
		"one is left out" "$T/log" "$B/dfshim" run --host -n 2 -- \
		"$py" tests/torch/ddp.py --left
fi
if wants others; then
	for binding in nccl4py cupy; do
		needs="${binding/nccl4py/nccl.core}, cuda.core, cuda.bindings"
		if "$py" -c "import $needs" 2>/dev/null; then
			mkdir "$T/$binding" "$T/$binding-nccl"
			run "$binding" 0 --host -n 2 -- \
				"$py" tests/torch/bindings.py $binding "$T/$binding"
			run "$binding, nccl's rules" 0 --host -n 2 --rules nccl --timeout 30 -- \
				"$py" tests/torch/bindings.py $binding "$T/$binding-nccl"
		else
			skipped=$((skipped + 1))
			echo "skip $binding: not installed"
		fi
	done
fi
if wants suite; then
	for world in $worlds; do
		# The tests of PyTorch's profiler expect names that only its stock process group
		# gives to its work. A suite that is stopped leaves its folder behind, so the folder
		# is in ours.
		TMPDIR=$T TORCH_DIST_USE_NCCL2=0 PYTORCH_PRINT_REPRO_ON_FAILURE=0 "$B/dfshim" run \
			--host=$world -- "$py" tests/torch/suite.py --world $world \
			--known docs/pytorch-suite.txt "${part[@]}" 2>"$T/err" | tee "$T/log"
		n='([0-9]+)'
		read -r p f s <<<"$(sed -nE \
			"s/^[0-9]+ ranks: $n passed, $n failed, $n skipped$/\1 \2 \3/p" "$T/log")"
		[ -n "${p-}" ] || f=1
		[ "$f" = 0 ] || {
			echo "    | standard error ends:"
			tail -n 60 "$T/err" | sed 's/^/    | /'
		}
		passed=$((passed + ${p:-0})) failed=$((failed + f)) skipped=$((skipped + ${s:-0}))
	done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
