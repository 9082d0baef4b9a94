/*
 * Draws a sweep: the ratio of deadlocks in percent over the swept key, with whiskers for the 95 %
 * interval and a colour for each curve. The output is plain SVG with a little CSS, readable on
 * light and dark pages. A point shows its figures when the pointer is on it.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/xml_text.h"
#include "trace/sim/sim_int.h"
#include "trace/sim/sim_plot.h"
#include "trace/sim/sim_sweep.h"

#define WIDTH  760
#define HEIGHT 470
#define LEFT   78
#define RIGHT  24
#define TOP    56
#define BOTTOM 64

struct axis {
	double lo, hi; /* range of the data, after log10 if `log` */
	int log;
	double from, to; /* range in the drawing */
};

/* Okabe and Ito's colours: colour-blind readers can distinguish them. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
				      "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f"};

static double place(const struct axis *a, double v)
{
	if (a->log)
		v = log10(v);
	v = (v - a->lo) / (a->hi - a->lo);
	return a->from + (a->to - a->from) * fmin(fmax(v, 0), 1);
}

static void put_tick(FILE *f, int vertical, double at, const char *label)
{
	if (vertical)
		fprintf(f,
			"<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
			"text-anchor=\"end\">%s</text>\n",
			LEFT, at, WIDTH - RIGHT, LEFT - 8, at + 4, label);
	else
		fprintf(f,
			"<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
			"text-anchor=\"middle\">%s</text>\n",
			at, TOP, HEIGHT - BOTTOM, at, HEIGHT - BOTTOM + 18, label);
}

static void put_ticks(FILE *f, const struct axis *a, int vertical)
{
	char label[32];

	if (a->log) {
		int wide = a->hi - a->lo > 2.5;

		for (int e = (int)floor(a->lo); e <= (int)ceil(a->hi); e++)
			for (int m = 1; m < 10; m++) {
				double v = m * pow(10, e);

				if (log10(v) < a->lo - 1e-9 || log10(v) > a->hi + 1e-9 ||
				    (m > 1 && (wide || (m != 2 && m != 5))))
					continue;
				snprintf(label, sizeof(label), "%.4g", v);
				put_tick(f, vertical, place(a, v), label);
			}
		return;
	}
	{
		double step = pow(10, floor(log10((a->hi - a->lo) / 5)));
		double rough = (a->hi - a->lo) / 5 / step;

		step *= rough > 5 ? 10 : rough > 2 ? 5 : rough > 1 ? 2 : 1;
		for (double v = ceil(a->lo / step - 1e-9) * step; v <= a->hi + step * 1e-6;
		     v += step) {
			snprintf(label, sizeof(label), "%.4g", fabs(v) < step * 1e-6 ? 0 : v);
			put_tick(f, vertical, place(a, v), label);
		}
	}
}

static void put_curve(FILE *f, const struct df_sim_sweep *sw, const struct df_sim_curve *c,
		      const struct axis *ax, const struct axis *ay, const char *colour,
		      double shift)
{
	fprintf(f, "<g fill=\"%s\" stroke=\"%s\">\n<path class=\"line\" d=\"", colour, colour);
	for (int i = 0; i < c->nr; i++)
		fprintf(f, "%c%.1f %.1f", i ? 'L' : 'M', place(ax, sw->x[i]) + shift,
			place(ay, 100 * c->ratio[i]));
	fputs("\"/>\n", f);
	for (int i = 0; i < c->nr; i++) {
		double x = place(ax, sw->x[i]) + shift;
		double lo = place(ay, 100 * c->lo[i]), hi = place(ay, 100 * c->hi[i]);

		fprintf(f, "<path class=\"bar\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh8M%.1f %.1fh8\"/>", x,
			lo, hi, x - 4, lo, x - 4, hi);
		fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>", x,
			place(ay, 100 * c->ratio[i]));
		df_xml_text(f, sw->key, 0);
		fputs(" = ", f);
		df_xml_text(f, sw->text[i], 0);
		if (*c->name) {
			fputs(", ", f);
			df_xml_text(f, c->name, 0);
		}
		fprintf(f, ": %.4g %% (95 %% interval %.4g to %.4g %%)</title></circle>\n",
			100 * c->ratio[i], 100 * c->lo[i], 100 * c->hi[i]);
	}
	fputs("</g>\n", f);
}

/*
 * Sets the range of the ratios. The scale is logarithmic if they span more than 1.5 decades and
 * none is 0.
 */
static void scale_ratios(struct axis *ay, const struct df_sim_curve *curves, int nr_curves)
{
	double lo = 100, hi = 0;

	for (int k = 0; k < nr_curves; k++)
		for (int i = 0; i < curves[k].nr; i++) {
			lo = fmin(lo, 100 * curves[k].ratio[i]);
			hi = fmax(hi, 100 * curves[k].hi[i]);
		}
	ay->log = lo > 0 && hi / lo > 30;
	if (ay->log) {
		ay->lo = log10(lo) - 0.5;
		ay->hi = fmin(log10(hi) + 0.1, 2);
	} else {
		ay->lo = 0;
		ay->hi = hi > 0 ? fmin(100, hi * 1.05) : 1;
	}
}

int df_sim_plot(FILE *f, const struct df_sim_sweep *sw, const struct df_sim_curve *curves,
		int nr_curves, const char *title)
{
	struct axis ax = {
		.from = LEFT + 16, .to = WIDTH - RIGHT - 16, .log = sw->numeric && sw->log};
	struct axis ay = {.from = HEIGHT - BOTTOM, .to = TOP};

	ax.lo = INFINITY;
	ax.hi = -INFINITY;
	for (int i = 0; i < sw->nr; i++) {
		double v = ax.log ? log10(sw->x[i]) : sw->x[i];

		ax.lo = fmin(ax.lo, v);
		ax.hi = fmax(ax.hi, v);
	}
	if (ax.hi <= ax.lo) {
		ax.lo -= 0.5;
		ax.hi += 0.5;
	}
	scale_ratios(&ay, curves, nr_curves);

	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
		"height=\"%d\" role=\"img\">\n<title>",
		WIDTH, HEIGHT, WIDTH, HEIGHT);
	df_xml_text(f, title, 0);
	/* No CSS variables, because some viewers do not support them. */
	fputs("</title>\n<style>svg{font:12px sans-serif}text{fill:#222;stroke:none}"
	      ".paper{fill:#fff}.grid{stroke:#ddd}.frame{fill:none;stroke:#222}"
	      ".line{fill:none;stroke-width:1.8}.bar{fill:none}.h{font-size:15px;font-weight:600}"
	      "@media(prefers-color-scheme:dark){text{fill:#ddd}.paper{fill:#181818}"
	      ".grid{stroke:#3a3a3a}.frame{stroke:#ddd}}</style>\n",
	      f);
	fprintf(f, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", WIDTH, HEIGHT);
	fprintf(f, "<text class=\"h\" x=\"%d\" y=\"24\">", LEFT);
	df_xml_text(f, title, 0);
	fputs("</text>\n", f);
	if (sw->numeric)
		put_ticks(f, &ax, 0);
	for (int i = 0; i < sw->nr && !sw->numeric; i++) {
		fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
			place(&ax, sw->x[i]), HEIGHT - BOTTOM + 18);
		df_xml_text(f, sw->text[i], 0);
		fputs("</text>\n", f);
	}
	put_ticks(f, &ay, 1);
	fprintf(f, "<path class=\"frame\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, HEIGHT - BOTTOM,
		WIDTH - RIGHT);
	fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2,
		HEIGHT - 18);
	df_xml_text(f, sw->key, 0);
	fprintf(f,
		"</text>\n<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">"
		"rounds that deadlock, %% (bars: 95 %% interval)</text>\n",
		(TOP + HEIGHT - BOTTOM) / 2);
	for (int k = 0; k < nr_curves; k++) {
		const char *colour = colours[(size_t)k % DF_ARRAY_LEN(colours)];

		put_curve(f, sw, &curves[k], &ax, &ay, colour, 2.5 * (k - (nr_curves - 1) / 2.0));
		if (!*curves[k].name || k > 11)
			continue;
		fprintf(f,
			"<g fill=\"%s\"><circle cx=\"%d\" cy=\"%d\" r=\"4\"/><text x=\"%d\" "
			"y=\"%d\">",
			colour, LEFT + 14, TOP + 12 + 17 * k, LEFT + 24, TOP + 16 + 17 * k);
		df_xml_text(f, curves[k].name, 0);
		fputs("</text></g>\n", f);
	}
	fputs("</svg>\n", f);
	return ferror(f) ? -EIO : 0;
}
