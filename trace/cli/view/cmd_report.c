/*
 * `dfshim report`: one self-contained HTML file: verdict, wait-for graph, a timeline to zoom and
 * drag, a table of the ranks.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/xml_text.h"
#include "trace/cli/cli.h"
#include "trace/cli/input.h"
#include "trace/cli/view/timeline.h"
#include "trace/record/names.h"
#include "trace/say/json.h"
#include "trace/say/picture.h"

static const char head[] =
	"<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>dfshim report</title><style>"
	"body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1200px;padding:16px;color:#222;background:#fff}"
	"h1{font-size:20px;padding:12px 16px;border-radius:6px;color:#fff}h2{font-size:17px;margin-top:28px}"
	"dl{font-size:16px}dt{font-weight:600;float:left;clear:left;width:190px}dd{margin:0 0 6px 200px}"
	".good{background:#2e7d32}.bad{background:#c62828}pre{background:#f5f5f5;padding:12px;white-space:pre-wrap;font-size:13px}"
	"table{border-collapse:collapse;width:100%;font-size:13px}td,th{border:1px solid #ddd;padding:3px 8px;text-align:left}"
	"th{background:#f5f5f5}.box{border:1px solid #ddd;overflow:auto;max-height:620px}canvas{width:100%;border:1px solid #ddd;"
	"touch-action:none;cursor:grab}#tip{min-height:1.5em;font-size:13px;color:#555}svg{display:block}"
	"summary{margin:10px 0;cursor:pointer}"
	"</style></head><body>\n";

static const char script[] =
	"<script>\n"
	"const c=document.getElementById('tl'),x=c.getContext('2d'),tip=document.getElementById('tip');\n"
	"const rows=[],at=new Map();for(const b of D.bars){const k=b[0]+'/'+b[1];"
	"if(!at.has(k)){at.set(k,rows.length);rows.push([b[0],b[1]])}}\n"
	"const H=18,L=170;let a=0,z=D.end||1,drag=null;const R=window.devicePixelRatio||1;\n"
	"function size(){c.style.height=Math.max(60,rows.length*H+24)+'px';c.width=c.clientWidth*R;c.height=c.clientHeight*R;"
	"draw()}\n"
	"function px(t){return L+(t-a)/(z-a)*(c.clientWidth-L)}\n"
	"function draw(){x.setTransform(R,0,0,R,0,0);x.clearRect(0,0,c.clientWidth,c.clientHeight);x.font='11px sans-serif';\n"
	"rows.forEach((r,i)=>{x.fillStyle=i%2?'#fafafa':'#f0f0f0';x.fillRect(0,20+i*H,c.clientWidth,H);x.fillStyle='#333';"
	"x.fillText(D.procs[r[0]]+' '+r[1],4,33+i*H,L-8)});\n"
	"for(const b of D.bars){const i=at.get(b[0]+'/'+b[1]);let p=Math.max(L,px(b[2])),q=Math.min(c.clientWidth,px(b[3]));"
	"if(q<L||p>c.clientWidth)continue;x.fillStyle=b[5]?(b[5]==2?'#e57373':'#c62828'):b[6]?'#90a4ae':'#66a56b';"
	"x.fillRect(p,22+i*H,Math.max(1,q-p),H-4);if(q-p>40){x.fillStyle='#fff';x.fillText(b[4],p+3,33+i*H,q-p-6)}}\n"
	"x.fillStyle='#333';for(let k=0;k<=6;k++){const t=a+(z-a)*k/6;x.fillText((t/1e9).toFixed(6)+' s',Math.min(px(t),"
	"c.clientWidth-70),12)}}\n"
	"c.onwheel=e=>{e.preventDefault();const f=e.deltaY<0?.8:1.25,m=a+(e.offsetX-L)/(c.clientWidth-L)*(z-a);"
	"a=m-(m-a)*f;z=m+(z-m)*f;draw()};\n"
	"c.onpointerdown=e=>{drag=[e.offsetX,a,z];c.setPointerCapture(e.pointerId)};c.onpointerup=()=>drag=null;\n"
	"c.onpointermove=e=>{if(drag){const d=(drag[0]-e.offsetX)/(c.clientWidth-L)*(drag[2]-drag[1]);a=drag[1]+d;z=drag[2]+d;"
	"draw();return}const i=Math.floor((e.offsetY-20)/H),t=a+(e.offsetX-L)/(c.clientWidth-L)*(z-a);tip.textContent='';"
	"for(const b of D.bars)if(at.get(b[0]+'/'+b[1])===i&&t>=b[2]&&t<=b[3])tip.textContent=b[4]+': '+((b[3]-b[2])/1e6)"
	".toFixed(3)+' ms'+(b[5]?', not finished':'')+(b[7]?', called at '+b[7]:'')};\n"
	"c.dataset.rows=rows.length;c.ondblclick=()=>{a=0;z=D.end||1;draw()};window.onresize=size;size();\n"
	"</script>\n";

static void ranks_table(FILE *out, const struct df_check_result *r)
{
	const struct df_check_set *set = r->set;

	fputs("<h2>Ranks</h2><table><tr><th>rank<th>process<th>host<th>executor<th>records<th>operations<th>unfinished<th>last record"
	      "<th>state</tr>\n",
	      out);
	for (size_t i = 0; i < set->nr_traces; i++) {
		const struct df_trc *t = &set->traces[i];
		char op[96];

		if (t->dropped)
			continue;
		fputs("<tr><td>", out);
		df_xml_text(out, t->label, 0);
		fprintf(out, "<td>%u<td>", t->h.pid);
		df_xml_text(out, t->h.host, 0);
		fprintf(out, "<td>%s<td>%" PRIu64 "<td>%" PRIu64 "<td>%zu<td>%.3f s ago<td>",
			df_header_executor(&t->h), t->nr_recs, t->nr_ops, t->nr_uops,
			df_say_ago(set, (uint32_t)i, t->last_ns));
		if (t->fate != DF_ALIVE)
			fputs(t->fate == DF_DEAD ? "died"
						 : df_say_exit((int)t->h.closed, op, sizeof(op)),
			      out);
		for (size_t k = 0; k < t->nr_calls && t->fate == DF_ALIVE; k++)
			fprintf(out, "%sin %s (%.1f s)", k ? ", " : "",
				df_call_text(t->calls[k].call),
				df_say_ago(set, (uint32_t)i, t->calls[k].enter_ns));
		if (t->nr_uops && t->fate == DF_ALIVE) {
			fputs(t->nr_calls ? "; first unfinished: " : "first unfinished: ", out);
			df_xml_text(out, df_say_op(set, &set->ops[t->first_op], op, sizeof(op)), 0);
		}
		fputs("</tr>\n", out);
	}
	fputs("</table>\n", out);
}

/*
 * A bar for the script: process, track, begin, end, text, state, whether it is a call, call site.
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
	/* Only for unfinished operations: the stacks of all would be most of the page. */
	if (b->open && !b->is_call && b->stack[0])
		json_array_append_new(o, df_json_text(b->stack));
	return o;
}

static int timeline(FILE *out, const struct df_timeline *t)
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
	fputs("<h2>Timeline</h2><p>Wheel: zoom. Drag: move. Double click: all. Red: never finished.</p>"
	      "<canvas id=\"tl\"></canvas><div id=\"tip\"></div>\n<script>const D=",
	      out);
	rc = df_json_write(json_pack("{s:o, s:o, s:o}", "procs", procs, "end",
				     df_json_u64(t->end_ns - t->first_ns), "bars", bars),
			   out, 0);
	fputs(";</script>\n", out);
	fputs(script, out);
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

/*
 * Draws the nodes that block one another at a readable size. If more nodes are stuck, a click shows
 * all.
 */
static int graphs(FILE *out, const struct df_check_result *r)
{
	struct df_picture core, all;
	int rc = df_picture_make(&core, r, 0, 0);

	if (rc)
		return rc;
	rc = df_picture_make(&all, r, 0, 120);
	if (rc) {
		df_picture_fini(&core);
		return rc;
	}
	core.left_out = 0;
	if (all.nr_boxes)
		fputs("<h2>Who waits for whom</h2>\n<p>An arrow goes from what waits to what it waits for. Yellow: has "
		      "begun. Dashed: where dfshim can cut.</p>\n",
		      out);
	if (core.nr_boxes > 1) {
		fputs("<div class=\"box\" id=\"cycle\">", out);
		if (core.nr_way > 1)
			df_picture_way_svg(&core, out);
		else
			df_picture_svg(&core, "", out);
		fputs("</div>\n", out);
	}
	if (all.nr_boxes > core.nr_boxes) {
		fprintf(out, "<details%s><summary>All that is stuck</summary>",
			core.nr_boxes > 1 ? "" : " open");
		fputs("<div class=\"box\" id=\"stuck\">", out);
		df_picture_svg(&all, "", out);
		fputs("</div></details>\n", out);
	}
	df_picture_fini(&core);
	df_picture_fini(&all);
	return 0;
}

/*
 * The findings of `dfshim predict` in other executions. Its first line is for the heading. Prints
 * all lines except those that only a replay needs.
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

static int write_report(FILE *out, const struct df_check_result *r, const struct df_timeline *t,
			FILE *witness)
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
	fputs("</dl>\n", out);
	rc = graphs(out, r);
	rc = rc ?: timeline(out, t);
	ranks_table(out, r);
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
	struct df_timeline t;
	int json = 0, rc = 1;
	FILE *out, *found = NULL;
	const struct df_opt options[] = {
		DF_OPT(OUTPUT, output, "where to (report.html)"),
		DF_OPT(WITNESS, witness, "also a deadlock that `dfshim predict` wrote down"),
		DF_OPT(JSON, json, "say as JSON what was found and where it was written"),
	};

	DF_CLI_PARSE(
		"report", &argc, &argv, DF_CLI_TRACES,
		.doc = "Writes one self-contained HTML file: the verdict with its evidence, the wait-for graph, "
		       "a timeline (wheel zooms, dragging moves), and a table of all ranks. It loads nothing "
		       "from the network.");
	found = witness ? fopen(witness, "r") : NULL;
	if (witness && !found)
		return df_cli_input_error("report", witness, "%s", strerror(errno));
	if (df_timeline_load(&t, "report", argc, argv, 20000)) {
		if (found)
			fclose(found);
		return 1;
	}
	r = df_cli_judge("report", argc, argv, &opts);
	out = r ? df_cli_create("report", output) : NULL;
	if (out)
		rc = df_cli_close("report", output, out, write_report(out, r, &t, found));
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
	df_timeline_fini(&t);
	if (found)
		fclose(found);
	return rc;
}
