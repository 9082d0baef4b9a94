/*
 * The word that says that a stream has come to an operation, where the word lies twice (runtime/coll/words.c): in the GPU's
 * memory, where the daemon polls it, and in host memory, where the poller looks. OPS operations are submitted; a stream comes to
 * one after the other and writes both words for each; the kernel leaves whenever it has found nothing to do; the poller launches
 * it when operations are in flight and the host's word is another one than at the last launch. (It would launch it without
 * that after a time, too, so what is shown here is that nobody waits for that time.)
 *
 * The stream's two writes are two steps. Fences are where the code has them: a write of a stream comes after what it wrote before.
 *
 * Checked: who launches because of the host's word finds the word in the GPU's memory (assertion), and all operations end
 * (no invalid end state).
 *
 * Controls: -DREVERSED: the host's word is written first: a kernel that comes because of it finds nothing and leaves, and nobody
 * calls it back. -DONE: only the GPU's word is written: the poller never learns of it. -DAT_LEAVING: the poller takes the
 * word that it remembers when the kernel has gone, not before the launch: what was written in between is not noticed.
 */
#ifndef OPS
#define OPS 3
#endif

byte near, host;  /* the two words */
byte done;	  /* operations that the kernel has finished */
byte seen;	  /* of the host's word: at the last launch */
bool kernel, due; /* due: the launch was for what the host's word said */
byte told;	  /* what it said then */

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
		/* It has seen that there is nothing. It leaves, or looks again. */
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
		/* df_words_sum(), before the launch: what is written later makes another sum. */
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
