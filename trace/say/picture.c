/*
 * Makes boxes and arrows from a verdict's graph. Joins, matches and starts are not drawn: an arrow
 * leads from an operation or thread to the one that it waits for. The layout needs no program: a
 * column is a rank, rows are in the order of issue.
 */
#include <stdio.h>
#include <string.h>
#include "trace/record/names.h"
#include "trace/say/picture.h"
#include "runtime/base/vec.h"
#include "trace/judge/say.h"

static const char *const why[] = {
	[DF_E_SELF] = "",
	[DF_E_MATCH] = "needs",
	[DF_E_PEER] = "needs",
	[DF_E_STREAM] = "stream",
	[DF_E_EVENT] = "event",
	[DF_E_COMM] = "communicator order",
	[DF_E_QUEUE] = "queue",
	[DF_E_SLOT] = "slot",
	[DF_E_HOLDS] = "held by",
	[DF_E_HAZARD] = "buffers",
	[DF_E_WORK] = "work",
	[DF_E_LEGACY] = "legacy stream",
	[DF_E_NOT_ISSUED] = "not issued",
	[DF_E_HOST] = "its thread",
	[DF_E_SYNC_STREAM] = "waits for result",
	[DF_E_SYNC_DEVICE] = "device sync",
	[DF_E_SYNC_IMPLICIT] = "implicit sync",
	[DF_E_OUTSIDE] = "another thread ends it",
	[DF_E_BARRIER] = "needs all",
	[DF_E_GROUP] = "ends with its group",
	[DF_E_PART] = "",
};

static int drawn(const struct df_node *n)
{
	return n->kind != DF_N_JOIN && n->kind != DF_N_MATCH && n->kind != DF_N_START;
}

static int column_of(struct df_picture *p, const char *name)
{
	for (size_t i = 0; i < p->nr_columns; i++)
		if (!strcmp(p->columns[i], name))
			return (int)i;
	if (DF_VEC_ROOM(p->columns, p->cap_columns, p->nr_columns + 1))
		return 0;
	snprintf(p->columns[p->nr_columns], sizeof(p->columns[0]), "%s", name);
	return (int)p->nr_columns++;
}

static int box_add(struct df_picture *p, const struct df_check_result *r, uint32_t node,
		   uint32_t *box_of, int in_cycle)
{
	const struct df_node *n = &r->g.nodes[node];
	const struct df_check_set *set = r->set;
	struct df_box *b;
	char sig[96], op[96];

	if (box_of[node] != DF_NONE)
		return 0;
	b = DF_VEC_PUSH(p->boxes, p->nr_boxes, p->cap_boxes);
	if (!b)
		return -ENOMEM;
	memset(b, 0, sizeof(*b));
	box_of[node] = (uint32_t)p->nr_boxes - 1;
	b->node = node;
	b->in_cycle = in_cycle;
	switch (n->kind) {
	case DF_N_DONE: {
		const struct df_uop *u = &set->ops[n->ref];

		/* The start and the end of an operation share a box. */
		if (u->start != DF_NONE)
			box_of[u->start] = box_of[node];
		b->started = u->l.state == DF_OP_STARTED;
		snprintf(b->text, sizeof(b->text), "%s %s", df_say_op(set, u, op, sizeof(op)),
			 df_say_sig(&u->l, sig, sizeof(sig)));
		df_say_rank(set, u, b->where, sizeof(b->where));
		break;
	}
	case DF_N_THREAD:
		snprintf(b->text, sizeof(b->text), "thread in %s",
			 df_call_text(set->traces[n->trace].calls[n->ref].call));
		df_say_host(&r->g, node, b->where, sizeof(b->where));
		break;
	case DF_N_NEXT:
		/* A node without a communicator: any call. */
		if (n->gcomm == DF_NONE)
			snprintf(b->text, sizeof(b->text), "not issued yet");
		else
			snprintf(b->text, sizeof(b->text), "a call on %s, not issued yet",
				 set->gcomms[n->gcomm].label);
		df_say_member(set, n->gcomm, n->rank, b->where, sizeof(b->where));
		break;
	default:
		df_say_node(&r->g, node, b->text, sizeof(b->text));
		snprintf(b->where, sizeof(b->where), "%s",
			 n->trace == DF_NONE ? "all" : set->traces[n->trace].label);
	}
	b->column = column_of(p, b->where);
	return 0;
}

static int arrow_add(struct df_picture *p, uint32_t from, uint32_t to, const char *text,
		     int in_cycle, int cut)
{
	struct df_arrow *a;

	if (from == to || from == DF_NONE || to == DF_NONE)
		return 0;
	for (size_t i = p->nr_arrows; i-- > 0 && i + 64 > p->nr_arrows;) {
		if (p->arrows[i].from == from && p->arrows[i].to == to) {
			p->arrows[i].in_cycle |= (uint8_t)in_cycle;
			p->arrows[i].cut |= (uint8_t)cut;
			return 0;
		}
	}
	a = DF_VEC_PUSH(p->arrows, p->nr_arrows, p->cap_arrows);
	if (!a)
		return -ENOMEM;
	*a = (struct df_arrow){from, to, (uint8_t)in_cycle, (uint8_t)cut, text};
	return 0;
}

/* Follows edges from a box through nodes that are not drawn. */
static int follow(struct df_picture *p, const struct df_check_result *r, uint32_t node,
		  const uint32_t *box_of, uint32_t from, const char *text, int depth)
{
	int rc = 0;

	for (uint32_t k = r->g.out_first[node]; k < r->g.out_first[node + 1] && !rc; k++) {
		const struct df_edge *e = &r->g.edges[r->g.out[k]];
		const char *t = why[e->kind][0] ? why[e->kind] : text;

		if (!df_edge_on(e, r->world) || !r->g.stuck[e->to])
			continue;
		if (box_of[e->to] != DF_NONE && box_of[e->to] != from)
			rc = arrow_add(p, from, box_of[e->to], t, 0, 0);
		else if (!drawn(&r->g.nodes[e->to]) && depth < 64)
			rc = follow(p, r, e->to, box_of, from, t, depth + 1);
	}
	return rc;
}

/*
 * Makes the way from the verdict's steps, each box once. Leaves it empty if the steps do not follow
 * one another.
 */
static int find_way(struct df_picture *p, const struct df_check_result *r, const uint32_t *box_of)
{
	p->way = malloc((r->nr_steps + 1) * sizeof(*p->way));
	if (!p->way)
		return -ENOMEM;
	for (size_t i = 0; i < r->nr_steps; i++) {
		uint32_t from = box_of[r->steps[i].from], to = box_of[r->steps[i].to];

		/* The box was left out because of the limit. */
		if (from == DF_NONE || to == DF_NONE)
			return 0;
		if (p->nr_way && p->way[p->nr_way - 1] != from) {
			p->nr_way = 0;
			return 0;
		}
		if (!p->nr_way)
			p->way[p->nr_way++] = from;
		if (to != from)
			p->way[p->nr_way++] = to;
	}
	p->closed = p->nr_way > 1 && p->way[p->nr_way - 1] == p->way[0];
	p->nr_way -= (size_t)p->closed;
	return 0;
}

static int by_place(const void *pa, const void *pb)
{
	const struct df_box *a = pa, *b = pb;

	if (a->column != b->column)
		return a->column - b->column;
	return a->node < b->node ? -1 : 1;
}

static int rank_number(const char *s)
{
	while (*s && (*s < '0' || *s > '9'))
		s++;
	return *s ? atoi(s) : 1 << 30;
}

/* Orders columns by the number in their name, rows by order of issue. */
static void place(struct df_picture *p, uint32_t *box_of, size_t nr_nodes)
{
	uint32_t *moved = malloc((p->nr_boxes + 1) * sizeof(*moved));
	int row = 0;

	for (size_t i = 0; i < p->nr_columns; i++) {
		for (size_t k = i + 1; k < p->nr_columns; k++) {
			char tmp[48];

			if (rank_number(p->columns[k]) >= rank_number(p->columns[i]))
				continue;
			memcpy(tmp, p->columns[i], sizeof(tmp));
			memcpy(p->columns[i], p->columns[k], sizeof(tmp));
			memcpy(p->columns[k], tmp, sizeof(tmp));
		}
	}
	for (size_t i = 0; i < p->nr_boxes; i++) {
		p->boxes[i].column = column_of(p, p->boxes[i].where);
		p->boxes[i].row = (int)i;
	}
	if (p->nr_boxes)
		qsort(p->boxes, p->nr_boxes, sizeof(*p->boxes), by_place);
	for (size_t i = 0; i < p->nr_boxes; i++) {
		row = i && p->boxes[i].column == p->boxes[i - 1].column ? row + 1 : 0;
		if (moved)
			moved[p->boxes[i].row] = (uint32_t)i;
		p->boxes[i].row = row;
	}
	for (size_t i = 0; moved && i < nr_nodes; i++)
		if (box_of[i] != DF_NONE)
			box_of[i] = moved[box_of[i]];
	free(moved);
}

int df_picture_make(struct df_picture *p, const struct df_check_result *r, int exec,
		    size_t max_steps, size_t max_boxes)
{
	uint32_t *box_of = malloc((r->g.nr_nodes + 1) * sizeof(*box_of));
	int rc = box_of ? 0 : -ENOMEM;

	memset(p, 0, sizeof(*p));
	if (box_of)
		memset(box_of, 0xff, (r->g.nr_nodes + 1) * sizeof(*box_of));
	for (size_t i = 0; i < r->nr_steps && !rc; i++) {
		uint32_t ends[2] = {r->steps[i].from, r->steps[i].to};

		for (int k = 0; k < 2 && !rc; k++) {
			const struct df_node *n = &r->g.nodes[ends[k]];

			if (n->kind == DF_N_START)
				ends[k] = r->set->ops[n->ref].done;
			if (p->nr_boxes < max_steps)
				rc = box_add(p, r, ends[k], box_of, 1);
		}
	}
	if (!r->nr_steps && r->root != DF_NONE && !rc && drawn(&r->g.nodes[r->root]))
		rc = box_add(p, r, r->root, box_of, 1);
	for (size_t i = 0; i < r->g.nr_nodes && !rc; i++) {
		if (!drawn(&r->g.nodes[i]) || (!exec && !r->g.stuck[i]) ||
		    (exec && r->g.nodes[i].kind != DF_N_DONE))
			continue;
		if (p->nr_boxes < max_boxes)
			rc = box_add(p, r, (uint32_t)i, box_of, 0);
		else if (box_of[i] == DF_NONE)
			p->left_out++;
	}
	if (!rc)
		place(p, box_of, r->g.nr_nodes);
	if (!rc)
		rc = find_way(p, r, box_of);
	for (size_t i = 0; i < r->nr_steps && !rc; i++)
		for (int k = 0; k < DF_E_NR; k++)
			if (r->steps[i].kinds >> k & 1 && why[k][0]) {
				rc = arrow_add(p, box_of[r->steps[i].from], box_of[r->steps[i].to],
					       why[k], 1, r->steps[i].cut);
				break;
			}
	for (size_t i = 0; i < p->nr_boxes && !rc; i++) {
		const struct df_node *n = &r->g.nodes[p->boxes[i].node];

		if (exec) {
			/* Each operation of a rank follows the previous one. */
			if (i && p->boxes[i].column == p->boxes[i - 1].column)
				rc = arrow_add(p, (uint32_t)i, (uint32_t)i - 1, "after", 0, 0);
			continue;
		}
		rc = follow(p, r, p->boxes[i].node, box_of, (uint32_t)i, "", 0);
		if (!rc && n->kind == DF_N_DONE && r->g.stuck[r->set->ops[n->ref].start])
			rc = follow(p, r, r->set->ops[n->ref].start, box_of, (uint32_t)i, "", 0);
	}
	free(box_of);
	if (rc)
		df_picture_fini(p);
	return rc;
}

void df_picture_fini(struct df_picture *p)
{
	free(p->boxes);
	free(p->arrows);
	free(p->columns);
	free(p->way);
	memset(p, 0, sizeof(*p));
}

/*
 * Writes a quoted label for Graphviz, which interprets HTML entities, and escapes after a
 * backslash.
 */
static void dot_text(FILE *out, const char *s)
{
	fputc('"', out);
	for (; *s; s++) {
		if (*s == '&')
			fputs("&amp;", out);
		else if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else
			fputc(*s, out);
	}
	fputc('"', out);
}

void df_picture_dot(const struct df_picture *p, const char *title, FILE *out)
{
	fputs("digraph waits {\n\trankdir=LR;\n\tnode [shape=box, fontname=\"sans-serif\"];\n"
	      "\tlabel=",
	      out);
	dot_text(out, title);
	fputs(";\n", out);
	for (size_t c = 0; c < p->nr_columns; c++) {
		fprintf(out, "\tsubgraph cluster_%zu {\n\t\tlabel=", c);
		dot_text(out, p->columns[c]);
		fputs(";\n", out);
		for (size_t i = 0; i < p->nr_boxes; i++) {
			if (p->boxes[i].column != (int)c)
				continue;
			fprintf(out, "\t\tb%zu [label=", i);
			dot_text(out, p->boxes[i].text);
			fprintf(out, "%s%s];\n",
				p->boxes[i].in_cycle ? ", color=red, penwidth=2" : "",
				p->boxes[i].started ? ", style=filled, fillcolor=\"#fff3c4\"" : "");
		}
		fputs("\t}\n", out);
	}
	for (size_t i = 0; i < p->nr_arrows; i++)
		fprintf(out, "\tb%u -> b%u [label=\"%s%s\"%s];\n", p->arrows[i].from,
			p->arrows[i].to, p->arrows[i].why, p->arrows[i].cut ? " (can be cut)" : "",
			p->arrows[i].in_cycle ? ", color=red, penwidth=2" : ", color=gray");
	fputs("}\n", out);
}
