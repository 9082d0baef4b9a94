/*
 * The wait-for graph, or the order of execution, as boxes and arrows that fit on a page; drawn by
 * the graph and report subcommands. Each rank has a column of boxes.
 */
#ifndef DF_TRACE_SAY_PICTURE_H
#define DF_TRACE_SAY_PICTURE_H

#include <stdio.h>
#include "trace/judge/result.h"

struct df_box {
	uint32_t node; /* node of the graph */
	int column, row;
	int in_cycle, started;
	char text[160];
	char where[48];
};

struct df_arrow {
	uint32_t from, to; /* indices of boxes */
	uint8_t in_cycle, cut;
	const char *why;
};

struct df_picture {
	struct df_box *boxes;
	size_t nr_boxes, cap_boxes;
	struct df_arrow *arrows;
	size_t nr_arrows, cap_arrows;
	char (*columns)[48];
	size_t nr_columns, cap_columns;
	size_t left_out; /* boxes beyond the limit */
	/*
	 * The boxes of the verdict's steps, one after the other, as far as they are drawn. closed:
	 * the last box leads to the first again. nr_way 0: the steps do not follow one another.
	 */
	uint32_t *way;
	size_t nr_way;
	int closed;
};

/*
 * Makes the picture of stuck operations and their waits; exec: of all unfinished operations in the
 * order of their streams. Draws at most max_steps boxes of the verdict's steps, and others while
 * there are fewer than max_boxes. Returns 0 or -ENOMEM.
 */
int df_picture_make(struct df_picture *p, const struct df_check_result *r, int exec,
		    size_t max_steps, size_t max_boxes);
void df_picture_fini(struct df_picture *p);

void df_picture_dot(const struct df_picture *p, const char *title, FILE *out);
void df_picture_svg(const struct df_picture *p, const char *title, FILE *out);
/* Draws the way alone, as a ring to be read clockwise (nr_way > 1). */
void df_picture_way_svg(const struct df_picture *p, FILE *out);

#endif
