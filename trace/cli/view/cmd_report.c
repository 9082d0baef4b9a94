/*
 * `dfshim report`: one self-contained HTML file: verdict, wait-for graph, a timeline to zoom and
 * drag, a table of the ranks.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "runtime/base/xml_text.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/common/input.h"
#include "trace/cli/view/timeline.h"
#include "trace/judge/say.h"
#include "trace/record/names.h"
#include "trace/say/alike.h"
#include "trace/say/json.h"
#include "trace/say/picture.h"

static const char head[] =
	"<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
	"content=\"width=device-width,initial-scale=1\"><title>dfshim report</title><style>"
	"body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1200px;padding:16px;"
	"color:#222;background:#fff}"
	"h1{font-size:20px;padding:12px 16px;border-radius:6px;color:#fff}h2{font-size:17px;"
	"margin-top:28px}"
	"dl{font-size:16px}dt{font-weight:600;float:left;clear:left;width:190px}"
	"dd{margin:0 0 6px 200px}"
	".good{background:#2e7d32}.bad{background:#c62828}pre{background:#f5f5f5;padding:12px;"
	"white-space:pre-wrap;font-size:13px}"
	"table{border-collapse:collapse;width:100%;font-size:13px}td,th{border:1px solid #ddd;"
	"padding:3px 8px;text-align:left}"
	"th{background:#f5f5f5}.box{border:1px solid #ddd;overflow:auto;max-height:620px}"
	"canvas{width:100%;border:1px solid #ddd;"
	"touch-action:none;cursor:grab}#tip{min-height:1.5em;font-size:13px;color:#555}"
	"svg{display:block}"
	"summary{margin:10px 0;cursor:pointer}:root{color-scheme:light dark}"
	"pre,td,dd{overflow-wrap:anywhere}"
	"@media(max-width:600px){dt{float:none;width:auto}dd{margin-left:0}table{display:block;"
	"overflow-x:auto}"
	"td:last-child{min-width:12em}}"
	"@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
	"pre,th{background:#2a2a2a}"
	"td,th,.box,canvas{border-color:#555}#tip{color:#aaa}a{color:#8ab4f8}}"
	"</style></head><body>\n";

static const char script[] =
	"<script>\n"
	"const c=document.getElementById('tl'),x=c.getContext('2d'),"
	"tip=document.getElementById('tip');\n"
	"const dark=matchMedia('(prefers-color-scheme:dark)');"
	"let ink,even,odd,late,call;function colors(){[ink,even,odd,late,call]=dark.matches?"
	"['#ddd','#222','#2c2c2c','#b05a5a','#607d8b']:['#333','#f0f0f0','#fafafa','#e57373',"
	"'#90a4ae']}\n"
	"const rows=[],at=new Map();for(const b of D.bars){const k=b[0]+'/'+b[1];"
	"if(!at.has(k)){at.set(k,rows.length);rows.push([b[0],b[1]])}}\n"
	"const H=18,L=170;let a=0,z=D.end||1,drag=null;const R=window.devicePixelRatio||1;\n"
	"function size(){c.style.height=Math.max(60,rows.length*H+24)+'px';c.width=c.clientWidth*R;"
	"c.height=c.clientHeight*R;"
	"draw()}\n"
	"function px(t){return L+(t-a)/(z-a)*(c.clientWidth-L)}\n"
	"function draw(){colors();x.setTransform(R,0,0,R,0,0);x.clearRect(0,0,c.clientWidth,"
	"c.clientHeight);x.font='11px sans-serif';\n"
	"rows.forEach((r,i)=>{x.fillStyle=i%2?odd:even;x.fillRect(0,20+i*H,c.clientWidth,H);"
	"x.fillStyle=ink;"
	"x.fillText(D.procs[r[0]]+' '+r[1],4,33+i*H,L-8)});\n"
	"for(const b of D.bars){const i=at.get(b[0]+'/'+b[1]);let p=Math.max(L,px(b[2])),"
	"q=Math.min(c.clientWidth,px(b[3]));"
	"if(q<L||p>c.clientWidth)continue;"
	"x.fillStyle=b[5]?(b[5]==2?late:'#c62828'):b[6]?call:'#66a56b';"
	"x.fillRect(p,22+i*H,Math.max(1,q-p),H-4);if(q-p>40){x.fillStyle='#fff';"
	"x.fillText(b[4],p+3,33+i*H,q-p-6)}}\n"
	"x.fillStyle=ink;const n=Math.max(1,Math.min(6,Math.floor((c.clientWidth-L-70)/80)));"
	"for(let k=0;k<=n;k++){const t=a+(z-a)*k/n;x.fillText((t/1e9).toFixed(6)+' s',"
	"Math.min(px(t),"
	"c.clientWidth-70),12)}}\n"
	"c.onwheel=e=>{e.preventDefault();const f=e.deltaY<0?.8:1.25,"
	"m=a+(e.offsetX-L)/(c.clientWidth-L)*(z-a);"
	"a=m-(m-a)*f;z=m+(z-m)*f;draw()};\n"
	"c.onpointerdown=e=>{drag=[e.offsetX,a,z];c.setPointerCapture(e.pointerId)};"
	"c.onpointerup=()=>drag=null;\n"
	"c.onpointermove=e=>{if(drag){"
	"const d=(drag[0]-e.offsetX)/(c.clientWidth-L)*(drag[2]-drag[1]);a=drag[1]+d;z=drag[2]+d;"
	"draw();return}const i=Math.floor((e.offsetY-20)/H),"
	"t=a+(e.offsetX-L)/(c.clientWidth-L)*(z-a);tip.textContent='';"
	"for(const b of D.bars)if(at.get(b[0]+'/'+b[1])===i&&t>=b[2]&&t<=b[3])"
	"tip.textContent=b[4]+': '+((b[3]-b[2])/1e6)"
	".toFixed(3)+' ms'+(b[5]?', not finished':'')+(b[7]?', called at '+b[7]:'')};\n"
	"c.dataset.rows=rows.length;c.ondblclick=()=>{a=0;z=D.end||1;draw()};window.onresize=size;"
	"dark.onchange=draw;size();\n"
	"</script>\n";

/* The smallest and the largest value of a group. */
struct range {
	double least, most;
	int any;
};

static void range_add(struct range *x, double v)
{
	x->least = x->any ? DF_MIN(x->least, v) : v;
	x->most = x->any ? DF_MAX(x->most, v) : v;
	x->any = 1;
}

static void put_range(FILE *out, const struct range *x, int digits, const char *unit)
{
	fprintf(out, "<td>%.*f", digits, x->least);
	if (x->most > x->least)
		fprintf(out, " to %.*f", digits, x->most);
	fputs(unit, out);
}

/* Writes the cells of figures that differ between the processes of a group, as ranges. */
static void put_amounts(FILE *out, const struct df_check_result *r, const uint32_t *traces,
			size_t nr)
{
	struct range recs = {0}, ops = {0}, open = {0}, last = {0};

	for (size_t i = 0; i < nr; i++) {
		const struct df_trc *t = &r->set->traces[traces[i]];

		range_add(&recs, (double)t->nr_recs);
		range_add(&ops, (double)t->nr_ops);
		range_add(&open, (double)t->nr_uops);
		range_add(&last, df_say_ago(r->set, traces[i], t->last_ns));
	}
	put_range(out, &recs, 0, "");
	put_range(out, &ops, 0, "");
	put_range(out, &open, 0, "");
	put_range(out, &last, 3, " s ago");
}

static void put_process(FILE *out, const struct df_check_result *r, uint32_t trace)
{
	const struct df_trc *t = &r->set->traces[trace];

	fputs("<tr><td>", out);
	df_xml_text(out, t->label, 0);
	fprintf(out, "<td>%u<td>", t->h.pid);
	df_xml_text(out, t->h.host, 0);
	if (df_alike_device(r->set, trace) >= 0)
		fprintf(out, "<td>%d", df_alike_device(r->set, trace));
	else
		fputs("<td>", out);
	fprintf(out, "<td>%s", df_header_executor(&t->h));
	put_amounts(out, r, &trace, 1);
	fputs("</tr>\n", out);
}

/* A row for each group of ranks that do the same; a click shows its processes. */
static int ranks_table(FILE *out, const struct df_check_result *r, const struct df_alikes *a)
{
	static const char heads[] = "<th>process<th>host<th>GPU<th>executor<th>records<th>"
				    "operations<th>unfinished<th>last record";

	fputs("<h2>Ranks</h2><p>A row for ranks that do the same, the fewest first.</p>\n"
	      "<table><tr><th>ranks<th>records<th>operations<th>unfinished<th>last "
	      "record<th>state</tr>\n",
	      out);
	for (size_t i = 0; i < a->nr; i++) {
		const struct df_alike *g = &a->all[i];
		char *who = NULL;
		size_t n;
		FILE *mem = open_memstream(&who, &n);

		if (!mem)
			return -ENOMEM;
		df_alike_print_who(g, r->set, mem);
		fclose(mem);
		fputs("<tr><td>", out);
		df_xml_text(out, who, 0);
		free(who);
		put_amounts(out, r, g->traces, g->nr);
		fputs("<td>", out);
		df_xml_text(out, g->state, 0);
		fputs("</tr>\n", out);
	}
	fputs("</table>\n", out);
	for (size_t i = 0; i < a->nr; i++) {
		const struct df_alike *g = &a->all[i];

		fprintf(out, "<details%s><summary>%zu process%s: ", i ? "" : " open", g->nr,
			g->nr == 1 ? "" : "es");
		df_xml_text(out, g->state, 0);
		fprintf(out, "</summary><table><tr><th>rank%s</tr>\n", heads);
		for (size_t k = 0; k < g->nr; k++)
			put_process(out, r, g->traces[k]);
		fputs("</table></details>\n", out);
	}
	return 0;
}

#define DRAWN 32 /* maximum number of processes in the timeline */

static int by_number(const void *pa, const void *pb)
{
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	return (a > b) - (a < b);
}

/* Chooses processes to draw, from all groups in turn. Returns their number. */
static size_t choose(const struct df_alikes *a, uint32_t drawn[DRAWN])
{
	size_t nr = 0, more = 1;

	for (size_t k = 0; more && nr < DRAWN; k++) {
		more = 0;
		for (size_t i = 0; i < a->nr && nr < DRAWN; i++) {
			more |= k + 1 < a->all[i].nr;
			if (k < a->all[i].nr)
				drawn[nr++] = a->all[i].traces[k];
		}
	}
	qsort(drawn, nr, sizeof(*drawn), by_number);
	return nr;
}

/*
 * Returns a bar for the script: process, track, begin, end, text, state, whether it is a call, call
 * site.
 */
static json_t *bar(const struct df_bar_item *b)
{
	const char *comm = b->is_call ? "" : b->comm, *kind = df_kind_name(b->kind);
	char text[160], track[48], lane[16] = "";
	json_t *o;

	if (b->is_call)
		snprintf(text, sizeof(text), "%s", df_call_text(b->call));
	else if (b->intent)
		snprintf(text, sizeof(text),
			 "%s on %s, not issued yet: the thread waits in an earlier call", kind,
			 comm);
	else
		snprintf(text, sizeof(text), "%s#%" PRIu64 " %s", comm, b->index + 1, kind);
	if (b->lane)
		snprintf(lane, sizeof(lane), " (%u)", b->lane + 1);
	snprintf(track, sizeof(track), "%s %" PRIu64 "%s", b->is_call ? "thread" : "stream",
		 b->track, lane);
	o = json_pack("[i, s, o, o, o, i, i]", b->rank, track, df_json_u64(b->begin_ns),
		      df_json_u64(b->end_ns), df_json_text(text), b->open ? b->started ? 1 : 2 : 0,
		      b->is_call);
	/*
	 * Only unfinished operations get a stack, because the stacks of all would be most of the
	 * page.
	 */
	if (b->open && !b->is_call && b->stack[0])
		json_array_append_new(o, df_json_text(b->stack));
	return o;
}

static int timeline(FILE *out, const struct df_timeline *t, size_t nr_traces)
{
	json_t *procs = json_array(), *bars = json_array();
	int rc;

	for (size_t i = 0; i < t->nr_procs; i++) {
		int rank = t->procs[i].rank;
		const char *name = t->procs[i].name;

		/*
		 * In a process with several ranks, the names of streams and threads contain the
		 * rank.
		 */
		json_array_append_new(
			procs,
			rank >= 0 ? json_sprintf("rank %d", rank)
				  : df_json_text(strncmp(name, "rank -1 ", 8) ? name : name + 8));
	}
	for (size_t i = 0; i < t->nr_bars; i++)
		json_array_append_new(bars, bar(&t->bars[i]));
	fputs("<h2>Timeline</h2><p>Wheel: zoom. Drag: move. Double click: all. Red: never "
	      "finished.</p><canvas id=\"tl\"></canvas><div id=\"tip\"></div>\n<script>const D=",
	      out);
	rc = df_json_write(json_pack("{s:o, s:o, s:o}", "procs", procs, "end",
				     df_json_u64(t->end_ns - t->first_ns), "bars", bars),
			   out, 0);
	fputs(";</script>\n", out);
	fputs(script, out);
	if (t->nr_procs < nr_traces)
		fprintf(out,
			"<p>%zu of %zu processes are drawn: of those that do the same, some.</p>\n",
			t->nr_procs, nr_traces);
	if (t->left_out)
		fprintf(out, "<p>%zu older events are not drawn.</p>\n", t->left_out);
	return rc;
}

static void said(FILE *out, const char *term, const char *text)
{
	if (!text || !*text)
		return;
	fprintf(out, "<dt>%s<dd>", term);
	df_xml_text(out, text, 0);
}

#define CORE_BOXES 64
#define ALL_BOXES  120

/*
 * Draws the nodes that block one another at a readable size. If more nodes are stuck, a click shows
 * more.
 */
static int graphs(FILE *out, const struct df_check_result *r)
{
	struct df_picture core, all;
	int rc = df_picture_make(&core, r, 0, CORE_BOXES, 0);

	if (rc)
		return rc;
	rc = df_picture_make(&all, r, 0, ALL_BOXES, ALL_BOXES);
	if (rc) {
		df_picture_fini(&core);
		return rc;
	}
	core.left_out = 0;
	if (all.nr_boxes)
		fputs("<h2>Who waits for whom</h2>\n"
		      "<p>An arrow goes from what waits to what it waits for. Yellow: has begun. "
		      "Dashed: where dfshim can cut.</p>\n",
		      out);
	if (core.nr_boxes > 1) {
		fputs("<div class=\"box\" id=\"cycle\">", out);
		if (core.nr_way > 1)
			df_picture_way_svg(&core, out);
		else
			df_picture_svg(&core, "", out);
		fputs("</div>\n", out);
		if (core.nr_boxes == CORE_BOXES)
			fputs("<p>Only the first waits are drawn.</p>\n", out);
	}
	if (all.nr_boxes > core.nr_boxes) {
		fprintf(out, "<details%s><summary>%s that is stuck</summary>",
			core.nr_boxes > 1 ? "" : " open", all.left_out ? "More" : "All");
		fputs("<div class=\"box\" id=\"stuck\">", out);
		df_picture_svg(&all, "", out);
		fputs("</div></details>\n", out);
	}
	df_picture_fini(&core);
	df_picture_fini(&all);
	return 0;
}

/*
 * Prints a witness of `dfshim predict`: its first line for a heading, or all lines except those
 * that only a replay needs.
 */
static void predicted(FILE *out, FILE *witness, int heading)
{
	char line[4096];

	rewind(witness);
	while (fgets(line, sizeof(line), witness)) {
		line[strcspn(line, "\n")] = '\0';
		if (heading) {
			df_xml_text(out, *line == '#' ? line + 2 : line, 0);
			return;
		}
		if (*line == '@')
			continue;
		df_xml_text(out, line, 0);
		fputc('\n', out);
	}
}

static int write_report(FILE *out, const struct df_check_result *r, const struct df_alikes *a,
			const struct df_timeline *t, FILE *witness)
{
	char *text = NULL;
	size_t n;
	FILE *mem = open_memstream(&text, &n);
	int rc;

	if (!mem)
		return -ENOMEM;
	df_check_print(r, mem);
	fclose(mem);
	fputs(head, out);
	if (witness) {
		fputs("<h1 class=\"bad\">POTENTIAL DEADLOCK: ", out);
		predicted(out, witness, 1);
		fputs("</h1>\n", out);
	}
	fprintf(out, "<h1 class=\"%s\">%s", df_verdict_exit(r->verdict) ? "bad" : "good",
		witness ? "This run: " : "");
	df_xml_text(out, df_check_line(r), 0);
	fputs("</h1>\n<dl>", out);
	said(out, "What to do", r->fix);
	said(out, "What dfshim can do", r->remedy_text);
	said(out, "Where the ranks part", r->divergence);
	said(out, "Last call alike", r->alike);
	said(out, "Decided by", r->decided);
	fputs("</dl>\n", out);
	rc = graphs(out, r);
	rc = rc ?: ranks_table(out, r, a);
	rc = rc ?: timeline(out, t, r->set->nr_traces - r->set->nr_dropped);
	if (witness) {
		fputs("<h2>An execution that deadlocks</h2>\n<pre>", out);
		predicted(out, witness, 0);
		fputs("</pre>\n", out);
	}
	fputs("<h2>Evidence</h2>\n<pre>", out);
	df_xml_text(out, text, 0);
	fputs("</pre>\n</body></html>\n", out);
	free(text);
	return rc;
}

int df_cmd_report(int argc, char **argv)
{
	struct df_check_opts opts = {.alive = df_check_alive};
	const char *output = "report.html", *witness = NULL;
	struct df_check_result *r;
	struct df_alikes a = {0};
	struct df_timeline t = {0};
	uint32_t drawn[DRAWN];
	int json = 0, rc = 1, failed;
	FILE *out, *found = NULL;
	const struct df_opt options[] = {
		DF_OPT(OUTPUT, output, "the file to write (report.html)"),
		DF_OPT(WITNESS, witness, "also a deadlock that `dfshim predict` wrote down"),
		DF_OPT(JSON, json, "say as JSON what was found and where it was written"),
	};

	DF_CLI_PARSE("report", &argc, &argv, DF_CLI_TRACES,
		     .doc = "Writes one self-contained HTML file: the verdict with its evidence, "
			    "the wait-for graph, a timeline (wheel zooms, dragging moves), and a "
			    "table of all ranks. It loads nothing from the network.");
	found = witness ? fopen(witness, "r") : NULL;
	if (witness && !found)
		return df_cli_input_error("report", witness, "%s", strerror(errno));
	r = df_cli_judge("report", argc, argv, &opts);
	failed = r ? df_alikes_find(&a, r) : 0;
	failed = r && !failed ? df_timeline_load(&t, r->set, drawn, choose(&a, drawn), 20000)
			      : failed;
	if (failed)
		df_cli_input_error("report", argv[0], "%s", strerror(-failed));
	out = r && !failed ? df_cli_create("report", output) : NULL;
	if (out)
		rc = df_cli_close("report", output, out, write_report(out, r, &a, &t, found));
	if (!rc && json)
		rc = df_json_line(json_pack("{s:s, s:o, s:o}", "verdict",
					    df_verdict_word(df_check_verdict(r)), "line",
					    df_json_text(df_check_line(r)), "file",
					    df_json_text(output)),
				  stdout)
			     ? 1
			     : 0;
	else if (!rc)
		printf("%s\n%s\n", df_check_line(r), output);
	df_check_result_free(r);
	df_alikes_fini(&a);
	df_timeline_fini(&t);
	if (found)
		fclose(found);
	return rc;
}
