/*
 * The process that reports the verdict on a hang (runtime/watch/watchdog.c, docs/verdicts.md).
 * Connected processes look once a tick. Each hangs from some tick on, or has nothing unfinished, or
 * makes no progress for a while and then goes on. One process may be stopped for a while, and then
 * neither answers nor reports. A process without progress for TIMEOUT ticks collects the answers.
 * Of the processes without progress for half of this time, the one with the lowest process id
 * reports, and informs the others. If a process does not answer, the report is delayed for PATIENCE
 * ticks. After four times as many ticks a process reports by itself. News take up to a tick, and
 * wait for a stopped process.
 *
 * Checked: a hang is reported once.
 *
 * -DBY_NAME: the process with the lowest id of all reports, whether it hangs or not, and a process
 * that leaves the report to it looks no more, so there may be no report.
 *
 * -DONCE: a process that leaves the report to another looks no more, so there is no report if that
 * one goes on.
 *
 * -DUNTOLD: the others do not learn of the report, so there are two.
 *
 * -DALONE: every process whose time is over reports, also two at the same time.
 */
#ifdef BY_NAME
#define ONCE
#endif
#define N	 3
#define TIMEOUT	 2
#define PATIENCE 2
#define END	 14
#define NEVER	 99

byte now;
byte from[N]; /* makes no progress from then on; NEVER if nothing is unfinished */
byte until[N]; /* goes on then; NEVER if it hangs */
byte stop_at = NEVER, cont_at = NEVER, stopper = N;
bool told[N], looked[N];
bool news[N], due[N]; /* news under way; news that have arrived */
byte nr_told;

#define STOPPED(p) ((p) == stopper && now >= stop_at && now < cont_at)
#define STALLED(p) (from[p] <= now && now < until[p])
#define SINCE(p)   (now - from[p])

proctype process(byte p)
{
	byte speaker, j;
	bool silent;

	do
	:: now >= END -> break
	:: now < END && !looked[p] && (STOPPED(p) || !STALLED(p) || told[p] || SINCE(p) < TIMEOUT) ->
		atomic {
			if
			:: !STOPPED(p) && due[p] -> due[p] = false; told[p] = STALLED(p)
			:: else
			fi;
			looked[p] = true
		}
	:: now < END && !looked[p] && !STOPPED(p) && STALLED(p) && !told[p] && SINCE(p) >= TIMEOUT ->
		/* Collects the answers. */
		d_step {
			speaker = p;
			silent = false;
			j = 0;
			do
			:: j == N -> break
			:: j < N ->
				if
				:: j != p && STOPPED(j) -> silent = true
#ifdef BY_NAME
				:: j != p && !STOPPED(j) ->
#else
				:: j != p && !STOPPED(j) && STALLED(j) && 2 * SINCE(j) >= TIMEOUT ->
#endif
#ifndef ALONE
					if
					:: j < speaker -> speaker = j
					:: else
					fi
#else
					skip
#endif
				:: else
				fi;
				j++
			od
		};
		/* Meanwhile other processes go on. Then it decides. */
		atomic {
			if
			:: due[p] || news[p] -> due[p] = false; news[p] = false; told[p] = true
			:: !due[p] && silent && SINCE(p) < TIMEOUT + PATIENCE
			:: !due[p] && !(silent && SINCE(p) < TIMEOUT + PATIENCE) &&
				(speaker == p || SINCE(p) >= TIMEOUT + 4 * PATIENCE) ->
				told[p] = true;
				nr_told++;
#ifndef UNTOLD
				j = 0;
				do
				:: j == N -> break
				:: j < N -> news[j] = j != p; j++
				od
#endif
			:: else ->
#ifdef ONCE
				told[p] = true
#endif
			fi;
			looked[p] = true
		}
	od
}

inline deliver(p)
{
	if
	:: news[p] && STOPPED(p) -> due[p] = true
	:: news[p] && !STOPPED(p) && STALLED(p) -> told[p] = true
	:: else
	fi;
	news[p] = false;
	looked[p] = false
}

proctype clock()
{
	do
	:: now == END -> break
	:: atomic {
		now < END && looked[0] && looked[1] && looked[2] ->
			deliver(0);
			deliver(1);
			deliver(2);
			now++
	}
	od;
	/* A process that is stopped for ever cannot report; the others do. */
	assert(nr_told <= 1);
	assert(nr_told == 1 || !((until[0] == NEVER && from[0] != NEVER && stopper != 0) ||
				 (until[1] == NEVER && from[1] != NEVER && stopper != 1) ||
				 (until[2] == NEVER && from[2] != NEVER && stopper != 2)))
}

init
{
	byte p;

	atomic {
		p = 0;
		do
		:: p == N -> break
		:: p < N ->
			if
			:: from[p] = NEVER; until[p] = NEVER
			:: from[p] = 0; until[p] = NEVER
			:: from[p] = 1; until[p] = NEVER
			:: from[p] = 2; until[p] = NEVER
			:: from[p] = 0; until[p] = 2 /* only computes for a long time */
			:: from[p] = 1; until[p] = 3
			fi;
			p++
		od;
		if
		:: skip
		:: stop_at = 0; stopper = 0
		:: stop_at = 2; stopper = 0
		:: stop_at = 1; stopper = 1
		:: stop_at = 1; cont_at = 5; stopper = 0
		:: stop_at = 3; cont_at = 7; stopper = 0
		:: stop_at = 2; cont_at = 9; stopper = 1
		fi;
		run process(0);
		run process(1);
		run process(2);
		run clock()
	}
}
