/* Pictures as SVG: all boxes in columns, or the verdict's steps as a ring. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/vec.h"
#include "runtime/base/xml_text.h"
#include "trace/say/picture.h"

#define BOX_W	  280
#define BOX_H	  34
#define GAP_X	  140
#define GAP_Y	  22
#define TOP	  70
#define BOX_CHARS 44 /* characters that fit into a box */

/* The places that labels of arrows take. */
struct labels {
	struct area {
		int left, top, right, bottom;
	} * v;
	size_t nr, cap;
};

static int meet(const struct area *a, const struct area *b)
{
	return a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom;
}

/* Whether a label covers neither a box nor another label. */
static int is_free(const struct df_picture *p, const struct labels *l, const struct area *a)
{
	for (size_t i = 0; i < p->nr_boxes; i++) {
		int x = 20 + p->boxes[i].column * (BOX_W + GAP_X),
		    y = TOP + p->boxes[i].row * (BOX_H + GAP_Y);

		if (meet(a, &(struct area){x, y, x + BOX_W, y + BOX_H}))
			return 0;
	}
	for (size_t i = 0; i < l->nr; i++)
		if (meet(a, &l->v[i]))
			return 0;
	return 1;
}

static double bezier(const int v[4], double t)
{
	double u = 1 - t;

	return u * u * u * v[0] + 3 * u * u * t * v[1] + 3 * u * t * t * v[2] + t * t * t * v[3];
}

/*
 * Writes the label of a curve as near to its middle as there is room. Right of the curve if it
 * stays within a column. If there is no room, only the curve's title says it.
 */
static void svg_label(const struct df_picture *p, struct labels *l, const int x[4], const int y[4],
		      int within, const char *text, FILE *out)
{
	int half = (int)strlen(text) * 3 + 1;

	for (int k = 0; k < 15; k++) {
		double t = .5 + (k & 1 ? -.06 : .06) * ((k + 1) / 2);
		int mx = (int)bezier(x, t) + within * (half + 4), my = (int)bezier(y, t) + 4;
		struct area *at, a = {mx - half, my - 10, mx + half, my + 3};

		if (!is_free(p, l, &a))
			continue;
		at = DF_VEC_PUSH(l->v, l->nr, l->cap);
		if (at)
			*at = a;
		fprintf(out,
			"<text x=\"%d\" y=\"%d\" class=\"why\" text-anchor=\"middle\">%s</text>\n",
			mx, my, text);
		return;
	}
}

static void svg_arrow(const struct df_picture *p, const struct df_arrow *a, struct labels *l,
		      FILE *out)
{
	const struct df_box *f = &p->boxes[a->from], *t = &p->boxes[a->to];
	int fx = 20 + f->column * (BOX_W + GAP_X), tx = 20 + t->column * (BOX_W + GAP_X);
	int fy = TOP + f->row * (BOX_H + GAP_Y) + BOX_H / 2,
	    ty = TOP + t->row * (BOX_H + GAP_Y) + BOX_H / 2,
	    side = (t->column > f->column) - (t->column < f->column);
	/*
	 * An arrow starts at the side of its box that faces the other box; within a column, on the
	 * right side.
	 */
	int from = fx + (side >= 0 ? BOX_W : 0), to = tx + (side <= 0 ? BOX_W : 0),
	    bend = side ? side * GAP_X / 2 : 30;
	const int x[4] = {from, from + bend, side ? to - bend : to + bend, to},
		  y[4] = {fy - 5 * side, fy - 5 * side, ty - 5 * side + 8 * !side,
			  ty - 5 * side + 8 * !side};

	fprintf(out, "<path d=\"M%d %d C%d %d %d %d %d %d\"", x[0], y[0], x[1], y[1], x[2], y[2],
		x[3], y[3]);
	fprintf(out, " class=\"%s%s\" marker-end=\"url(#%s)\"><title>%s%s</title></path>\n",
		a->in_cycle ? "way cycle" : "way", a->cut ? " cut" : "", a->in_cycle ? "ar" : "ag",
		a->why, a->cut ? " (can be cut)" : "");
	if (a->in_cycle)
		svg_label(p, l, x, y, !side, a->why, out);
}

/* The class of the root element limits these rules to the picture where a page contains it. */
static const char style[] =
	"<style>.waits{font-family:sans-serif}.waits text{fill:#222}.waits .paper{fill:#fff}"
	".waits .box{fill:#f5f5f5;stroke:#757575}.waits .begun{fill:#fff3c4}"
	".waits rect.cycle{stroke:#c62828;stroke-width:2}"
	".waits .way{fill:none;stroke:#9e9e9e}.waits .way.cycle{stroke:#c62828;stroke-width:2.5}"
	".waits .cut{stroke-dasharray:7 4}.waits .ag{fill:#9e9e9e}.waits .ar{fill:#c62828}"
	".waits .why{fill:#c62828;font-size:11px;stroke:#fff;stroke-width:3;paint-order:stroke}"
	"@media(prefers-color-scheme:dark){.waits text{fill:#ddd}.waits .paper{fill:#181818}"
	".waits .box{fill:#2a2a2a}.waits .begun{fill:#4d4017}"
	".waits rect.cycle,.waits .way.cycle{stroke:#ef6b67}.waits .ar{fill:#ef6b67}"
	".waits .why{fill:#ef6b67;stroke:#181818}}</style>\n";

static void svg_begin(FILE *out, size_t width, int height)
{
	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"waits\" width=\"%zu\" "
		"height=\"%d\" viewBox=\"0 0 %zu %d\">\n%s<defs>",
		width, height, width, height, style);
	for (int k = 0; k < 2; k++)
		fprintf(out,
			"<marker id=\"%s\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" "
			"markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path class=\"%s\" "
			"d=\"M0 0L10 5L0 10z\"/></marker>",
			k ? "ag" : "ar", k ? "ag" : "ar");
	fputs("</defs>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n", out);
}

void df_picture_svg(const struct df_picture *p, const char *title, FILE *out)
{
	size_t width = 40 + p->nr_columns * (BOX_W + GAP_X);
	struct labels labels = {0};
	int rows = 1, height;

	for (size_t i = 0; i < p->nr_boxes; i++)
		if (p->boxes[i].row >= rows)
			rows = p->boxes[i].row + 1;
	height = TOP + rows * (BOX_H + GAP_Y) + 30;
	svg_begin(out, width, height);
	fputs("<text x=\"20\" y=\"24\" font-size=\"15\" font-weight=\"bold\">", out);
	df_xml_text(out, title, 160);
	fputs("</text>\n", out);
	for (size_t c = 0; c < p->nr_columns; c++) {
		fprintf(out,
			"<text x=\"%zu\" y=\"56\" font-size=\"14\" font-weight=\"bold\" "
			"text-anchor=\"middle\">",
			20 + c * (BOX_W + GAP_X) + BOX_W / 2);
		df_xml_text(out, p->columns[c], 40);
		fputs("</text>\n", out);
	}
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < p->nr_arrows; i++)
			if (p->arrows[i].in_cycle == pass)
				svg_arrow(p, &p->arrows[i], &labels, out);
	free(labels.v);
	for (size_t i = 0; i < p->nr_boxes; i++) {
		const struct df_box *b = &p->boxes[i];
		int x = 20 + b->column * (BOX_W + GAP_X), y = TOP + b->row * (BOX_H + GAP_Y);

		fprintf(out,
			"<rect class=\"box%s%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
			"rx=\"5\"/>\n"
			"<text x=\"%d\" y=\"%d\" font-size=\"12\" text-anchor=\"middle\"><title>",
			b->started ? " begun" : "", b->in_cycle ? " cycle" : "", x, y, BOX_W, BOX_H,
			x + BOX_W / 2, y + BOX_H / 2 + 4);
		df_xml_text(out, b->text, 200);
		fputs("</title>", out);
		df_xml_text(out, b->text, BOX_CHARS);
		fputs("</text>\n", out);
	}
	if (p->left_out)
		fprintf(out, "<text x=\"20\" y=\"%d\" font-size=\"12\">and %zu more</text>\n",
			TOP + rows * (BOX_H + GAP_Y) + 18, p->left_out);
	fputs("</svg>\n", out);
}

/* ---- the way as a ring ----------------------------------------------------------------------- */

#define RING_W	    300
#define RING_H	    54
#define RING_X	    120 /* room between boxes for the arrow's label */
#define RING_Y	    64
#define RING_MARGIN 20

/*
 * Places boxes clockwise around a rectangle: along the top, down on the right, back along the
 * bottom, up on the left.
 */
static void ring_place(size_t i, size_t nr, int *col, int *row)
{
	int n = (int)nr, k = (int)i;
	int cols = n <= 2 ? n : n <= 4 ? 2 : 3;
	int down = n > 2 * cols ? (n - 2 * cols + 1) / 2 : 0;

	if (k < cols) {
		*col = k;
		*row = 0;
	} else if (k < cols + down) {
		*col = cols - 1;
		*row = k - cols + 1;
	} else if (k < 2 * cols + down) {
		*col = 2 * cols + down - 1 - k;
		*row = down + 1;
	} else {
		*col = 0;
		*row = down - (k - 2 * cols - down);
	}
}

static const struct df_arrow *arrow_of(const struct df_picture *p, uint32_t from, uint32_t to)
{
	for (size_t i = 0; i < p->nr_arrows; i++)
		if (p->arrows[i].from == from && p->arrows[i].to == to)
			return &p->arrows[i];
	return NULL;
}

/* Draws the arrow from the i-th box of the way to the next, from side to side. */
static void ring_arrow(const struct df_picture *p, size_t i, FILE *out)
{
	size_t next = (i + 1) % p->nr_way;
	const struct df_arrow *a = arrow_of(p, p->way[i], p->way[next]);
	int col[2], row[2], x[2], y[2], two = p->nr_way == 2 ? (i ? 12 : -12) : 0;

	ring_place(i, p->nr_way, &col[0], &row[0]);
	ring_place(next, p->nr_way, &col[1], &row[1]);
	for (int k = 0; k < 2; k++) {
		x[k] = RING_MARGIN + col[k] * (RING_W + RING_X);
		y[k] = RING_MARGIN + row[k] * (RING_H + RING_Y);
		if (col[0] == col[1]) {
			x[k] += RING_W / 2;
			y[k] += (row[!k] > row[k]) * RING_H;
		} else {
			x[k] += (col[!k] > col[k]) * RING_W;
			y[k] += RING_H / 2 + two;
		}
	}
	fprintf(out, "<path d=\"M%d %d L%d %d\" class=\"way cycle%s\" marker-end=\"url(#ar)\"/>\n",
		x[0], y[0], x[1], y[1], a && a->cut ? " cut" : "");
	fprintf(out, "<text x=\"%d\" y=\"%d\" class=\"why\" text-anchor=\"%s\">%s</text>\n",
		(x[0] + x[1]) / 2 + (x[0] == x[1]) * 8, (y[0] + y[1]) / 2 - (x[0] != x[1]) * 7,
		x[0] == x[1] ? "start" : "middle", a ? a->why : "");
	if (a && a->cut)
		fprintf(out,
			"<text x=\"%d\" y=\"%d\" class=\"why\" text-anchor=\"%s\">can be "
			"cut</text>\n",
			(x[0] + x[1]) / 2 + (x[0] == x[1]) * 8, (y[0] + y[1]) / 2 + 15,
			x[0] == x[1] ? "start" : "middle");
}

void df_picture_way_svg(const struct df_picture *p, FILE *out)
{
	int cols = 0, rows = 0, col, row;

	for (size_t i = 0; i < p->nr_way; i++) {
		ring_place(i, p->nr_way, &col, &row);
		cols = col >= cols ? col + 1 : cols;
		rows = row >= rows ? row + 1 : rows;
	}
	svg_begin(out, (size_t)(2 * RING_MARGIN + cols * (RING_W + RING_X) - RING_X),
		  2 * RING_MARGIN + rows * (RING_H + RING_Y) - RING_Y);
	for (size_t i = 0; i + !p->closed < p->nr_way; i++)
		ring_arrow(p, i, out);
	for (size_t i = 0; i < p->nr_way; i++) {
		const struct df_box *b = &p->boxes[p->way[i]];
		int x, y;

		ring_place(i, p->nr_way, &col, &row);
		x = RING_MARGIN + col * (RING_W + RING_X);
		y = RING_MARGIN + row * (RING_H + RING_Y);
		fprintf(out,
			"<rect class=\"box cycle%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
			"rx=\"6\"/>\n<text x=\"%d\" y=\"%d\" font-size=\"13\" font-weight=\"bold\" "
			"text-anchor=\"middle\">",
			b->started ? " begun" : "", x, y, RING_W, RING_H, x + RING_W / 2, y + 21);
		df_xml_text(out, b->where, 36);
		fprintf(out,
			"</text>\n"
			"<text x=\"%d\" y=\"%d\" font-size=\"12\" text-anchor=\"middle\"><title>",
			x + RING_W / 2, y + 41);
		df_xml_text(out, b->text, 200);
		fputs("</title>", out);
		df_xml_text(out, b->text, BOX_CHARS);
		fputs("</text>\n", out);
	}
	fputs("</svg>\n", out);
}
