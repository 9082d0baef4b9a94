/*
 * A process of the overlay that is stopped, and its children (runtime/ctl/tree.c, df_ctl_doubt()).
 * S is the root, or has a parent that answers. It has CHILDREN children. S may be stopped once, and
 * may continue or be killed. A child that doubts asks S for a sign of life. If none arrives in time,
 * it sends S the notice that it leaves and attaches elsewhere: to the parent of S, or, if S is the
 * root, to the eldest child. The eldest child becomes a root. The connection to S stays open: its
 * end shows the child that S has read the notice or has died, and the child then looks which. A root
 * that reads such a notice looks for a place below the child. Time is not modelled: a child may
 * find S too slow at any moment while S has not answered.
 *
 * Checked: S never counts as dead while it lives. If S stays stopped, all children reach one another
 * in the end. If it continues, all reach S. If it is killed, all know.
 *
 * The controls, each of which must fail:
 *
 * -DCLOSES: the child closes the connection without a notice.
 *
 * -DFORGETS: the child does not look when the connection ends.
 *
 * -DALONE: a root that reads the notice does not look for a place.
 */
#ifndef CHILDREN
#define CHILDREN 2
#endif
#define NONE 255
#define TOP  254 /* the parent of S */

bool root, stopped, killed, was_stopped;
bool notice[CHILDREN], answered[CHILDREN], asked[CHILDREN];
bool open_[CHILDREN];  /* the connection between S and the child */
bool below[CHILDREN];  /* S counts it as a child */
bool knows[CHILDREN];  /* knows that S has died */
byte up[CHILDREN];     /* the parent: CHILDREN is S */
byte up_s;	       /* the parent of S */
byte asks[CHILDREN];   /* a bound on the questions while S runs */

#define RUNS (!killed && !stopped)

/* The parts of S, of the eldest child, and of a child: S (CHILDREN), TOP, or the eldest child. */
#define PART_S	  (up_s == NONE -> CHILDREN : (up_s == TOP -> TOP : 0))
#define ELSE_(c, other) (up[c] == CHILDREN -> PART_S : (up[c] == TOP -> TOP : other))
#define PART(c)	  ELSE_(c, ELSE_(0, 0))

proctype child(byte me)
{
	do
	:: atomic {
		up[me] == CHILDREN && !asked[me] && (stopped || asks[me] < 2) ->
		asked[me] = true;
		answered[me] = false;
		asks[me] = asks[me] + !stopped
	   }
	:: atomic { asked[me] && answered[me] -> asked[me] = false }
	:: atomic {
		/* no sign of life in time, and S does not run */
		asked[me] && !answered[me] && up[me] == CHILDREN && !RUNS && open_[me] && !killed ->
		asked[me] = false;
#ifdef CLOSES
		open_[me] = false;
#else
		notice[me] = true;
#endif
		if
		:: !root -> up[me] = TOP
		:: root && me == 0 -> up[me] = NONE
		:: root && me != 0 -> up[me] = 0
		fi
	   }
	/* The connection has ended. */
	:: atomic {
		!open_[me] && up[me] != CHILDREN && !knows[me] && killed ->
#ifndef FORGETS
		knows[me] = true
#else
		break
#endif
	   }
	:: atomic {
		killed && up[me] == CHILDREN && !knows[me] ->
		knows[me] = true;
		if
		:: !root -> up[me] = TOP
		:: root && me == 0 -> up[me] = NONE
		:: root && me != 0 -> up[me] = 0
		fi
	   }
	:: timeout -> break
	od
}

/* The fate of S. */
proctype fate()
{
	byte c;

	if
	:: true
	:: atomic { stopped = true; was_stopped = true };
		if
		:: true /* it stays stopped */
		:: stopped = false
		:: atomic {
			killed = true;
			for (c : 0 .. CHILDREN - 1) {
				open_[c] = false
			}
		   }
		fi
	fi
}

/* What S does on the connection of a child. */
proctype s(byte c)
{
	do
	:: atomic { RUNS && open_[c] && asked[c] && !answered[c] && !notice[c] -> answered[c] = true }
	:: atomic {
		RUNS && open_[c] && notice[c] ->
		notice[c] = false;
		below[c] = false;
		open_[c] = false;
#ifndef ALONE
		/* The child's part goes on without S. */
		if
		:: root && up_s == NONE && PART(c) != PART_S -> up_s = 0
		:: else
		fi
#endif
	   }
	/* Closed without a notice: this would count as the death of the child. */
	:: atomic { RUNS && !open_[c] && below[c] -> assert(false) }
	:: timeout -> break
	od
}

init
{
	byte c, first;

	atomic {
		if
		:: root = true; up_s = NONE
		:: root = false; up_s = TOP
		fi;
		for (c : 0 .. CHILDREN - 1) {
			up[c] = CHILDREN;
			open_[c] = true;
			below[c] = true
		}
		for (c : 0 .. CHILDREN - 1) {
			run child(c);
			run s(c)
		}
		run fate()
	}
	_nr_pr == 1;
	first = PART(0);
	for (c : 0 .. CHILDREN - 1) {
		assert(PART(c) == first);
		assert(stopped || killed || PART(c) == PART_S);
		assert(!killed || knows[c]);
		assert(!stopped || killed || up[c] != CHILDREN)
	}
}
