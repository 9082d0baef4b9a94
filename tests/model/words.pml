/*
 * Slots of flag-with-data words (kernels/words.inl): a sender and a receiver, the credit that is
 * returned now and then, and the recycling of the connector (recycle.pml), whose successor starts
 * zeroed. Slices have one or two words. The words of a slice are stored in any order. The flag is
 * the lap, which wraps at FLAGS. On every SWEEP-th lap all words of the slot are written.
 *
 * Checked: every word that is taken is the slice's own, once and in order. Nothing is overwritten
 * before it is taken. No process waits for ever (invalid end states).
 *
 * -DNO_SWEEP: only the words that a slice needs are written.
 *
 * -DNO_ZERO: a successor's slots contain the memory's old contents.
 *
 * -DLAST_ONLY: the receiver checks only the last word's flag.
 *
 * -DEARLY: the sender takes a slot without a credit.
 *
 * -DNO_LAP: the flag is the same on every lap.
 *
 * -DCREDIT=3: with two slots, more slices than slots pass before the receiver returns the credit.
 *
 * -DUNTOLD: slices taken since the last credit are not accounted for when the connector is
 * recycled.
 */
#define FREE 0
#define OPEN 1
#define USED 2
#define OWNED 3
#ifndef ROUNDS
#define ROUNDS 6
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef CREDIT
#define CREDIT SLOTS
#endif
#define FLAGS 4
#define SWEEP 2
#define LAP(pos) ((pos) / SLOTS)
#ifdef NO_LAP
#define FLAG(pos) 1
#else
#define FLAG(pos) (1 + LAP(pos) % FLAGS)
#endif
#define AT(pos, w) ((pos) % SLOTS * 2 + (w))
#ifdef NO_SWEEP
#define SWEEPS(pos) false
#else
#define SWEEPS(pos) (LAP(pos) % SWEEP == 0)
#endif
#define JUNK 255

byte state = FREE;
byte tail, head;
byte flag[SLOTS * 2], data[SLOTS * 2];
byte nr[ROUNDS];
bool wanted = false, chosen = false;

inline put(pos, w)
{
	d_step {
		data[AT(pos, w)] = (w < nr[pos] -> pos : JUNK);
		flag[AT(pos, w)] = FLAG(pos)
	}
}

init
{
	byte n = 0;

	do
	:: n < ROUNDS && LAP(n) % 2 == 0 -> if :: nr[n] = 1 :: nr[n] = 2 fi; n++
	:: n < ROUNDS && LAP(n) % 2 == 1 -> nr[n] = 1; n++
	:: n == ROUNDS -> break
	od;
	chosen = true
}

active proctype owner()
{
	byte i = 0, base = 0, w;
	bool have = false, drained;

	chosen;
	do
	:: i < ROUNDS ->
		if
		:: !have ->
			d_step {
				tail = base;
				head = base;
				w = 0;
				do
				:: w < SLOTS * 2 ->
#ifdef NO_ZERO
					flag[w] = FLAG(base);
#else
					flag[w] = 0;
#endif
					data[w] = JUNK;
					w++
				:: else -> break
				od;
				w = 0;
				wanted = false;
				state = OPEN;
				have = true
			}
		:: else
		fi;
		/*
		 * Take. An aborted attempt has no effect, because the next one reads everything
		 * again.
		 */
		w = 0;
#ifdef LAST_ONLY
		flag[AT(i, nr[i] - 1)] == FLAG(i);
#endif
		do
		:: w < nr[i] ->
#ifdef LAST_ONLY
			assert(data[AT(i, w)] == i);
#else
			atomic { flag[AT(i, w)] == FLAG(i) -> assert(data[AT(i, w)] == i) };
#endif
			w++
		:: else -> break
		od;
		i++;
		if
		:: i % CREDIT == 0 -> head = i
		:: else
		fi;
		/* Idle, with memory pressure or without it. */
		if
		:: true
		:: wanted = true
		:: true ->
#ifndef UNTOLD
			head = i;
#endif
			if
			:: atomic { state == OPEN -> state = OWNED };
				drained = (tail == head);
				if
				:: drained ->
					base = tail;
					have = false;
					state = FREE
				:: else ->
#ifdef UNTOLD
					assert(tail != i);
#endif
					state = OPEN
				fi
			:: else -> wanted = true
			fi
		fi
	:: else -> break
	od
}

active proctype user()
{
	byte i = 0;
	bool gate = false;

	chosen;
	do
	:: i < ROUNDS ->
		if
		:: !gate -> atomic { state == OPEN -> state = USED }; gate = true
		:: else
		fi;
#ifdef EARLY
		i - head <= SLOTS;
#else
		i - head < SLOTS;
#endif
		if
		:: nr[i] == 1 && !SWEEPS(i) -> put(i, 0)
		:: else ->
			if
			:: put(i, 0); put(i, 1)
			:: put(i, 1); put(i, 0)
			fi
		fi;
		i++;
		tail = i;
		if
		:: true
		:: wanted -> gate = false; state = OPEN
		fi
	:: else -> break
	od;
	if
	:: gate -> state = OPEN
	:: else
	fi
}
