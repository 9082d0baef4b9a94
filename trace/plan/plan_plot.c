/*
 * Draws two iterations of each scheme below one another on one scale: computation, and transfers on
 * each link. Plain SVG with a little CSS, readable on light and dark pages; every block shows its
 * figures as a tooltip.
 */
#include <errno.h>
#include <math.h>

#include "runtime/base/err.h"
#include "runtime/base/xml_text.h"
#include "trace/plan/plan_int.h"

#define WIDTH  1180
#define LEFT   108
#define RIGHT  20
#define TOP    92
#define LANE   24
#define HEAD   26 /* the title of a scheme */
#define SPACE  16
#define BOTTOM 44

/* Okabe and Ito's colours, which colour-blind readers can distinguish. Buckets use them in turn. */
static const char *const colours[] = {"#56b4e9", "#e69f00", "#009e73", "#f0e442",
				      "#d55e00", "#cc79a7", "#8fa8c8", "#b8b8b8"};

/* The lanes of a scheme: computation, and the links that it uses. */
static int nr_lanes(const struct df_plan_profile *p, const struct df_plan_outcome *o)
{
	int n = 2;

	for (int l = 1; l < p->nr_links; l++)
		if (o->link_use[l] > 0)
			n = l + 2;
	return n;
}

static void put_span(FILE *f, const struct df_plan_profile *p, const struct df_plan_outcome *o,
		     const struct df_plan_span *s, int y, double scale)
{
	double from = (double)(s->begin_ns - o->window[0]), to = (double)(s->end_ns - o->window[0]);
	double w, x;
	int lane = s->what == DF_PLAN_C ? s->link + 1 : 0;

	from = fmax(from, 0);
	to = fmin(to, (double)(o->window[1] - o->window[0]));
	if (to <= from)
		return;
	x = LEFT + from * scale;
	w = (to - from) * scale;
	fprintf(f,
		"<g><rect class=\"b%s%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" "
		"fill=\"%s\"/>",
		s->what == DF_PLAN_F ? " f" : "", s->old ? " old" : "", x, y + lane * LANE + 2,
		fmax(w, 0.4), LANE - 4, colours[s->bucket % (int)DF_ARRAY_LEN(colours)]);
	if (w > (s->bucket < 9 ? 10 : 17))
		fprintf(f, "<text class=\"n\" x=\"%.2f\" y=\"%d\">%d</text>", x + w / 2,
			y + lane * LANE + LANE / 2 + 4, s->bucket + 1);
	fprintf(f, "<title>%s of bucket %d",
		s->what == DF_PLAN_F   ? "forward"
		: s->what == DF_PLAN_B ? "backward"
		: s->old	       ? "gradient of an earlier iteration"
				       : "gradient",
		s->bucket + 1);
	if (s->what == DF_PLAN_C) {
		fputs(" on ", f);
		df_xml_text(f, p->links[s->link].name, 0);
	}
	fprintf(f, ": %.2f ms</title></g>\n", (double)(s->end_ns - s->begin_ns) / 1e6);
}

static void put_scheme(FILE *f, const struct df_plan_profile *p, const struct df_plan_outcome *o,
		       int y, double scale)
{
	double w = (double)(o->window[1] - o->window[0]) * scale;
	int lanes = nr_lanes(p, o);

	fprintf(f,
		"<text class=\"s\" x=\"%d\" y=\"%d\">%s: %.1f ms an iteration, %.1f ms of it "
		"waiting",
		LEFT, y - 7, o->name, o->iteration_ns / 1e6, o->bubble_ns / 1e6);
	if (o->late_most)
		fprintf(f, "; %.2f updates an iteration, up to %d late", o->updates, o->late_most);
	fputs("</text>\n", f);
	for (int l = 0; l < lanes; l++) {
		fprintf(f,
			"<rect class=\"lane\" x=\"%d\" y=\"%d\" width=\"%.2f\" height=\"%d\"/>"
			"<text class=\"l\" x=\"%d\" y=\"%d\">",
			LEFT, y + l * LANE + 2, w, LANE - 4, LEFT - 8, y + l * LANE + LANE / 2 + 4);
		df_xml_text(f, l ? p->links[l - 1].name : "computation", 0);
		fputs("</text>\n", f);
	}
	for (size_t i = 0; i < o->nr_spans; i++)
		put_span(f, p, o, &o->spans[i], y, scale);
}

int df_plan_plot(FILE *f, const struct df_plan_profile *p, const struct df_plan_outcome *all,
		 int nr)
{
	int height = TOP + BOTTOM, y = TOP;
	double longest = 1, scale, step;

	for (int i = 0; i < nr; i++) {
		height += HEAD + nr_lanes(p, &all[i]) * LANE + SPACE;
		longest = fmax(longest, (double)(all[i].window[1] - all[i].window[0]));
	}
	scale = (WIDTH - LEFT - RIGHT) / longest;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
		"height=\"%d\" role=\"img\">\n<title>Schedules of ",
		WIDTH, height, WIDTH, height);
	df_xml_text(f, p->name, 0);
	/* No CSS variables: some viewers do not support them. */
	fputs("</title>\n"
	      "<style>svg{font:12px "
	      "sans-serif}text{fill:#222}.paper{fill:#fff}.b{stroke:#222;stroke-width:.7}.f{"
	      "opacity:.55}.old{stroke-dasharray:3 "
	      "2;stroke-width:1.4}.lane{fill:#eee}.n{text-anchor:middle;font-size:11px;fill:#000}."
	      "l{text-anchor:end}.s{font-weight:600}.h{font-size:16px;font-weight:600}.grid{stroke:"
	      "#ccc}.a{text-anchor:middle}@media(prefers-color-scheme:dark){text{fill:#ddd}.paper{"
	      "fill:#181818}.lane{fill:#2c2c2c}.grid{stroke:#444}}</style>\n",
	      f);
	fprintf(f,
		"<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n"
		"<text class=\"h\" x=\"%d\" y=\"28\">",
		WIDTH, height, LEFT);
	df_xml_text(f, p->name, 0);
	fprintf(f,
		"</text>\n"
		"<text x=\"%d\" y=\"50\">Two iterations. Numbers are buckets, 1 at the input. "
		"Pale: forward pass; full: backward pass.</text>\n"
		"<text x=\"%d\" y=\"67\">On links, dashed: gradients of earlier iterations. Grey: "
		"nothing to do.</text>\n",
		LEFT, LEFT);
	/* The scale: about ten marks, in steps of 1, 2 or 5. */
	step = pow(10, floor(log10(longest / 1e6 / 10)));
	step *= longest / 1e6 / 10 / step > 5	? 10
		: longest / 1e6 / 10 / step > 2 ? 5
		: longest / 1e6 / 10 / step > 1 ? 2
						: 1;
	for (double t = 0; t * 1e6 <= longest; t += step)
		fprintf(f,
			"<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"a\" x=\"%.1f\" "
			"y=\"%d\">%.6g</text>\n",
			LEFT + t * 1e6 * scale, TOP, height - BOTTOM, LEFT + t * 1e6 * scale,
			height - BOTTOM + 16, t);
	fprintf(f, "<text class=\"a\" x=\"%d\" y=\"%d\">ms</text>\n", (LEFT + WIDTH - RIGHT) / 2,
		height - 10);
	for (int i = 0; i < nr; i++) {
		y += HEAD;
		put_scheme(f, p, &all[i], y, scale);
		y += nr_lanes(p, &all[i]) * LANE + SPACE;
	}
	fputs("</svg>\n", f);
	return ferror(f) ? -EIO : 0;
}
