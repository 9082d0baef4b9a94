/*
 * A ring as in kernels/abi.h. The producer fills a slot, then releases the tail. The consumer
 * acquires the tail, reads, then releases the head. The producer overwrites a slot only after it
 * has seen that the head is past it. Release and acquire mean the order of the two stores on each
 * side, which the controls swap.
 *
 * Checked: every item arrives once, in order and complete. Indices are free-running.
 *
 * -DPUBLISH_FIRST: the tail is released before the slot is filled, so an old slot must be read.
 *
 * -DNO_CHECK: the head is not checked before a slot is overwritten, so an item must be lost.
 *
 * -DHEAD_FIRST: the head is released before the slot is read, so an item must be torn.
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#define ITEMS 5

byte slot[SLOTS];    /* contents of memory: 0, or an item */
byte tail, head;     /* contents of memory */
byte got;	     /* number of items that arrived */

active proctype producer()
{
	byte sent = 0;

	do
	:: sent < ITEMS ->
#ifndef NO_CHECK
		(sent - head < SLOTS);
#endif
#ifdef PUBLISH_FIRST
		tail = sent + 1;
#endif
		slot[sent % SLOTS] = sent + 1;
#ifndef PUBLISH_FIRST
		tail = sent + 1;
#endif
		sent++
	:: else -> break
	od
}

active proctype consumer()
{
	byte item;

	do
	:: got < ITEMS ->
		(tail > got);
#ifdef HEAD_FIRST
		head = got + 1;
#endif
		item = slot[got % SLOTS];
		assert(item == got + 1);
#ifndef HEAD_FIRST
		head = got + 1;
#endif
		got++
	:: else -> break
	od;
	assert(head == ITEMS || head == tail)
}
