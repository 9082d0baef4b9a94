/*
 * Intrusive doubly linked list with a head of the same type. The head of an empty list points to
 * itself. No locking: the owner of the list guards it.
 */
#ifndef DF_BASE_LIST_H
#define DF_BASE_LIST_H

#include "runtime/base/err.h"

struct df_list {
	struct df_list *next, *prev;
};

#define DF_LIST_INIT(name)                                                                         \
	{                                                                                          \
		&(name), &(name)                                                                   \
	}

static inline void df_list_init(struct df_list *head)
{
	head->next = head->prev = head;
}

static inline int df_list_empty(const struct df_list *head)
{
	return head->next == head;
}

static inline void df_list_insert_(struct df_list *node, struct df_list *prev, struct df_list *next)
{
	next->prev = node;
	node->next = next;
	node->prev = prev;
	prev->next = node;
}

static inline void df_list_add(struct df_list *head, struct df_list *node)
{
	df_list_insert_(node, head, head->next);
}

static inline void df_list_add_tail(struct df_list *head, struct df_list *node)
{
	df_list_insert_(node, head->prev, head);
}

/* Removes the node and makes it an empty list, so that it may be removed twice. */
static inline void df_list_del(struct df_list *node)
{
	node->next->prev = node->prev;
	node->prev->next = node->next;
	df_list_init(node);
}

/* Moves all of src to the tail of dst and leaves src empty. */
static inline void df_list_splice_tail(struct df_list *dst, struct df_list *src)
{
	if (df_list_empty(src))
		return;
	src->next->prev = dst->prev;
	dst->prev->next = src->next;
	src->prev->next = dst;
	dst->prev = src->prev;
	df_list_init(src);
}

#define df_list_entry(node, type, member) df_container_of(node, type, member)

/*
 * Returns the node of an entry by address arithmetic only: at the end of a loop `pos` is computed
 * from the head, which is inside no entry.
 */
#define df_list_node(pos, member)                                                                  \
	((struct df_list *)((char *)(pos) + offsetof(__typeof__(*(pos)), member)))

#define df_list_first(head, type, member)                                                          \
	(df_list_empty(head) ? (type *)0 : df_list_entry((head)->next, type, member))
#define df_list_last(head, type, member)                                                           \
	(df_list_empty(head) ? (type *)0 : df_list_entry((head)->prev, type, member))
#define df_list_each(pos, head, member)                                                            \
	for (pos = df_list_entry((head)->next, __typeof__(*pos), member);                          \
	     df_list_node(pos, member) != (head);                                                  \
	     pos = df_list_entry(df_list_node(pos, member)->next, __typeof__(*pos), member))

/* As df_list_each, but the loop may remove pos (only pos). */
#define df_list_each_safe(pos, tmp, head, member)                                                  \
	for (pos = df_list_entry((head)->next, __typeof__(*pos), member),                          \
	    tmp = df_list_entry(df_list_node(pos, member)->next, __typeof__(*pos), member);        \
	     df_list_node(pos, member) != (head); pos = tmp,                                       \
	    tmp = df_list_entry(df_list_node(tmp, member)->next, __typeof__(*pos), member))

#endif
