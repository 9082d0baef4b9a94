/*
 * The word that says that a stream has reached an operation exists twice (runtime/coll/words.c): in
 * the GPU's memory, where the daemon polls it, and in host memory, where the poller reads it. OPS
 * operations are submitted. A stream reaches one after the other, and writes both words for each.
 * The kernel leaves when it has found nothing to do. The poller launches it when operations are in
 * flight and the host's word differs from its value at the last launch. (The poller would also
 * launch it after a time. The model shows that no operation needs this.)
 *
 * The stream's two writes are two steps. Fences are where the code has them: a write of a stream
 * follows its earlier writes.
 *
 * Checked: a kernel that was launched because of the host's word finds the GPU's word written
 * (assertion). All operations end (no invalid end state).
 *
 * Controls:
 *
 * -DREVERSED: the host's word is written first. A kernel that is launched because of it finds
 * nothing and leaves, and is not launched again.
 *
 * -DONE: only the GPU's word is written, so the poller never learns of it.
 *
 * -DAT_LEAVING: the poller remembers the word after the kernel has left instead of before the
 * launch, so it misses words written in between.
 */
#ifndef OPS
#define OPS 3
#endif

byte near, host;  /* the GPU's word, the host's word */
byte done;	  /* operations that the kernel has finished */
byte seen;	  /* value of the host's word at the last launch */
bool kernel, due; /* due: the launch was because of the host's word */
byte told;	  /* value of the host's word then */

proctype stream()
{
	byte i;

	for (i : 1 .. OPS) {
#ifdef REVERSED
		host = i;
		near = i
#else
		near = i;
#ifndef ONE
		host = i
#endif
#endif
	}
}

proctype daemon()
{
end_away:
	do
	:: kernel ->
		assert(!due || near >= told);
		do
		:: d_step { done < near -> done++ }
		/* The kernel has found nothing. It leaves, or looks again. */
		:: done == near -> break
		od;
		kernel = false
	od
}

proctype poller()
{
	do
	:: done == OPS -> break
	:: done < OPS && !kernel && host != seen ->
		/* df_words_sum() before the launch: later writes change the sum. */
		told = host;
#ifndef AT_LEAVING
		seen = told;
#endif
		due = true;
		kernel = true;
#ifdef AT_LEAVING
		!kernel -> seen = host
#endif
	od
}

init {
	atomic {
		run stream();
		run daemon();
		run poller()
	}
}
