/*
 * A ring as in kernels/abi.h: the producer fills a slot, then releases the tail; the consumer acquires the tail,
 * reads, then releases the head; the producer overwrites a slot only after it has seen the head past it.
 * The order of the two stores on each side is what release and acquire stand for; the controls swap them.
 *
 * Checked: every item arrives once, in order, whole. Indices are free-running.
 *
 * -DPUBLISH_FIRST: the tail is released before the slot is filled: an old slot must be read.
 * -DNO_CHECK: the head is not looked at before a slot is overwritten: an item must be lost.
 * -DHEAD_FIRST: the head is released before the slot is read: an item must be torn.
 */
#ifndef SLOTS
#define SLOTS 2
#endif
#define ITEMS 5

byte slot[SLOTS];    /* what memory holds: 0 nothing, else the item */
byte tail, head;     /* what memory holds */
byte got;	     /* items that arrived */

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
