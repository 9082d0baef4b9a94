/*
 * Names that another program wrote into a trace, or gave to its file: of hosts, processes,
 * communicators, threads, functions and files. In no output of dfshim may they reach a terminal as
 * commands or as new lines, or become markup or syntax.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "runtime/base/clean_text.h"
#include "tests/lib/test.h"
#include "tests/lib/trace_build.h"
#include "trace/record/names.h"
#include "trace/say/source.h"

#define HOST	  "h\x1b]0;t\a\nINJECTED\"];<script>alert(1)</script>&#10;\xff"
#define EXE	  "/x/\r\x1b[2J\n~~~~\nINJECTED `e` <b>\x7f\xe2\x80\xae\xe2\x80\xa8"
#define COMM	  "c\x1b[2J\nINJECTED\"\\N<b>&lt;\xc2\x9b"
#define TASK	  "t\x1b[2J\n<b>\"\\N"
#define CODE	  "/x/m\x1b[2J\nINJECTED`<b>&#10;\"\\N!fn\x1b[0m\nINJECTED<script>alert(2)+0x1"
#define NAME	  "n\x1b[2J\nINJECTED\xc2\x9b\xe2\x80\xae"
#define FILE_NAME "f\x1b[2J\nINJECTED<b>\""

static char dir[256];

static void name_comm(struct tb_image *im, uint32_t comm)
{
	struct df_trace_comm *c = tb_comm_at(im, comm);

	snprintf(c->name, sizeof(c->name), "%u" COMM, comm);
}

/* Two ranks that use two communicators in opposite orders, with hostile names. */
static void make(struct tb_image *im, int rank)
{
	uint64_t word[2] = {0}, code;
	uint32_t comm[2];
	struct df_rec *r;

	tb_image_init(im, rank, 2, 64);
	im->h->rules = 1;
	memcpy(im->h->host, HOST, sizeof(HOST));
	memcpy(im->h->exe, EXE, sizeof(EXE));
	for (int i = 0; i < 2; i++) {
		comm[i] = tb_comm(im, 0x100 + (uint64_t)i, 2, rank, rank);
		name_comm(im, comm[i]);
	}
	memcpy(word, TASK, sizeof(TASK) < 16 ? sizeof(TASK) : 16);
	tb_rec(im, DF_REC_THREAD, 0, im->h->pid, word[0], word[1]);
	code = tb_string(im, CODE);
	tb_rec(im, DF_REC_SITE, 5, 0, 1, code);
	for (int i = 0; i < 2; i++) {
		tb_issue(im, comm[i ^ rank], rank, DF_KIND_ALLREDUCE, 8, -1, 0);
		tb_at(im, im->h->next - 3)->site = 5;
	}
	r = tb_rec(im, DF_REC_CALL_ENTER, 9, DF_CALL_DEVICE_SYNC, 0, 0);
	r->site = 5;
	/* The line of the process's Python program. */
	r = tb_rec(im, DF_REC_HOST_AT, 0, im->h->pid, DF_AT_RUNS, 0);
	r->site = 5;
	tb_quiet(im, 60000);
}

static void put_files(void)
{
	snprintf(dir, sizeof(dir), "%s/names", getenv("T") ? getenv("T") : "/tmp");
	ck_assert(!mkdir(dir, 0777) || errno == EEXIST);
	for (int i = 0; i < 2; i++) {
		struct tb_image im;
		char path[512];
		FILE *f;

		make(&im, i);
		snprintf(path, sizeof(path), "%s/r%d" FILE_NAME ".dft", dir, i);
		f = fopen(path, "w");
		ck_assert_msg(f && fwrite(im.h, 1, im.bytes, f) == im.bytes && !fclose(f), "%s: %s",
			      path, strerror(errno));
		tb_image_fini(&im);
	}
}

static const struct {
	const char *command; /* arguments of dfshim; $D is the folder of traces */
	enum { TEXT, JSON, MARKUP, DOT } form;
	/* a text that the output must contain, so that the names are really in it */
	const char *has;
} outputs[] = {
	{"ls $D", TEXT, "INJECTED"},
	{"ls --json $D", JSON, "INJECTED"},
	{"ls $D/*", TEXT, "f?[2J?INJECTED"},
	{"show --stacks $D", TEXT, "fn?[0m?INJECTED"},
	{"show --json $D", JSON, "INJECTED"},
	{"check $D", TEXT, "INJECTED"},
	{"check --json $D", JSON, "INJECTED"},
	{"graph $D", DOT, "INJECTED"},
	{"graph --exec $D", DOT, "INJECTED"},
	{"graph --json $D", JSON, "INJECTED"},
	{"graph $D -o $D/../x.svg && cat $D/../x.svg", MARKUP, "INJECTED"},
	{"graph --exec $D -o $D/../x.svg && cat $D/../x.svg", MARKUP, "INJECTED"},
	{"timeline $D", JSON, "INJECTED"},
	{"report $D -o $D/../x.html && cat $D/../x.html", MARKUP, "INJECTED"},
	{"report --json $D -o $D/../x.html", JSON, "ORDER"},
	{"predict $D", TEXT, ""},
	{"predict --json $D", JSON, ""},
	{"predict --json $D 2>&1 >$D/../x.json", TEXT, "INJECTED"},
	/* An error message names a file that cannot be read. */
	{"ls \"$D/none$(printf '\\033[2J\\nINJECTED')\"", TEXT, "INJECTED"},
	{"check \"$D/none$(printf '\\033[2J\\nINJECTED')\"", TEXT, "INJECTED"},
	/* So do those of wrong usage, which may be a name that a shell has found. */
	{"\"$N\"", TEXT, "INJECTED"},
	{"help \"$N\"", TEXT, "INJECTED"},
	{"check \"--$N\"", TEXT, "INJECTED"},
	{"show --rank \"$N\" $D", TEXT, "INJECTED"},
	{"env \"$N\"", TEXT, "INJECTED"},
	{"algo \"$N\"", TEXT, "INJECTED"},
	{"run \"--$N\" -- true", TEXT, "INJECTED"},
	{"run -n \"$N\" -- true", TEXT, "INJECTED"},
	{"run -- \"$N\"", TEXT, "INJECTED"},
	{"run -- python3 \"$N.py\"", TEXT, "INJECTED"},
	{"ci -- \"$N\"", TEXT, "INJECTED"},
	{"net --timeout 1 \"$N\"", TEXT, "INJECTED"},
	{"net 2>/dev/null", TEXT, "INJECTED"},
	{"env", TEXT, "INJECTED"},
};

/* Checks that no byte is a command for a terminal and that no name starts a line. */
static void is_clean(const char *what, const char *text)
{
	char *copy = strdup(text);

	for (char *p = copy; *p; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
	df_text_clean(copy, strlen(copy));
	for (size_t i = 0; text[i]; i++)
		ck_assert_msg(text[i] == copy[i] || text[i] == '\n' || text[i] == '\t',
			      "%s: byte 0x%02x before: %.60s", what, (unsigned char)text[i],
			      text + i);
	ck_assert_msg(!strstr(text, "\nINJECTED") && !strstr(text, "\n~~~~"), "%s: %s", what, text);
	free(copy);
}

/*
 * Checks that in Graphviz's language names occur only inside strings, in which & and \ stand for
 * themselves.
 */
static void is_dot(const char *what, const char *text)
{
	int in = 0;

	for (const char *p = text; *p; p++) {
		if (*p == '"') {
			in = !in;
		} else if (in && *p == '\\') {
			p++;
			ck_assert_msg(*p == '"' || *p == '\\', "%s: escape at %.20s", what, p);
		} else if (in && *p == '&') {
			ck_assert_msg(!strncmp(p, "&amp;", 5), "%s: entity at %.20s", what, p);
		} else if (!in) {
			ck_assert_msg(strncmp(p, "INJECTED", 8) != 0, "%s: outside a string: %.60s",
				      what, p);
		}
	}
	ck_assert_msg(!in, "%s: a string that does not end", what);
}

START_TEST(test_outputs)
{
	const char *what = outputs[_i].command;
	char command[1000], path[300], *text = calloc(1, 1 << 20), *data;
	FILE *f;

	put_files();
	setenv("N", NAME, 1);
	setenv("DFSHIM_ALGO", NAME, 1);
	setenv("NCCL_NET", NAME, 1);
	setenv("NCCL_NET_PLUGIN", NAME, 1);
	snprintf(path, sizeof(path), "%s/../out", dir);
	snprintf(command, sizeof(command), "D='%s'; %s/dfshim %s >'%s' 2>&%c%s%s%s", dir,
		 getenv("B") ? getenv("B") : "build", what, path,
		 outputs[_i].form == JSON ? '2' : '1',
		 outputs[_i].form == JSON ? "; jq -e . '" : "",
		 outputs[_i].form == JSON ? path : "",
		 outputs[_i].form == JSON ? "' >/dev/null" : "");
	ck_assert_msg(system(command) >= 0 && (f = fopen(path, "r")), "%s: %s", what,
		      strerror(errno));
	text[fread(text, 1, (1 << 20) - 1, f)] = 0;
	fclose(f);
	ck_assert_msg(strstr(text, outputs[_i].has) != NULL, "%s shows no \"%s\": %.3000s", what,
		      outputs[_i].has, text);
	is_clean(what, text);
	if (outputs[_i].form == MARKUP)
		ck_assert_msg(!strstr(text, "<script>alert") && !strstr(text, "<b>"),
			      "%s: markup: %.3000s", what, text);
	/* Entities have no meaning in the data of the page's script, so do not check them there. */
	if (outputs[_i].form == MARKUP && (data = strstr(text, "<script>const D=")))
		*data = 0;
	if (outputs[_i].form == MARKUP)
		ck_assert_msg(!strstr(text, "&#10;"), "%s: an entity: %.3000s", what, text);
	if (outputs[_i].form == DOT)
		is_dot(what, text);
	if (outputs[_i].form == JSON)
		ck_assert_msg(system(command) == 0, "%s: no JSON: %.3000s", what, text);
	free(text);
}
END_TEST

static const struct {
	const char *from, *to;
} texts[] = {
	{"plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
	 "plain \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
	{"a\x1b[0mb\nc\td\x7f", "a?[0mb?c?d?"},
	{"\xc2\x9b\xc2\xa0", "??\xc2\xa0"},		       /* C1 is replaced, a space stays */
	{"\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6", "?????????"}, /* line separator, directions */
	{"\xff\xc3(\xe2\x82", "?"
			      "?(?"
			      "?"}, /* invalid or incomplete UTF-8 */
	{"\xc0\xaf\xf5\x80\x80\x80", "??????"},
};

START_TEST(test_clean)
{
	char text[64];

	ck_assert_str_eq(df_text_cleaned(texts[_i].from, text, sizeof(text)), texts[_i].to);
}
END_TEST

static const struct {
	const char *file;
	int refused;
} files[] = {
	{"/home/me/job/train.py", 0},
	{"/train.py", 0},
	{"/net/far/export/x.py", 1},
	{"/net/known/x.py", 0},
	{"/net/known2/x.py", 1},
	{"/home/me/../../net/far/x.py", 1},
	{"/home//me/./../../net/./other/x.py", 1},
	{"/home/me/job/../x.py", 0},
	{"/with blank/a/x.py", 1},
	{"/proc/self/root/net/far/x.py", 1},
	{"/direct/x.py", 0},
	{"/network/x.py", 0},
};

/* A trace's file must not make an automounter connect to a machine of the trace's author. */
START_TEST(test_mounts)
{
	char mounts[] = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
			"23 22 0:21 / /proc rw - proc proc rw\n"
			"30 22 0:30 / /net rw,relatime shared:5 - autofs /etc/auto.net rw,fd=5\n"
			"31 30 0:31 / /net/known rw shared:6 - nfs4 known:/export rw\n"
			"32 22 0:32 / /with\\040blank rw - autofs map rw\n"
			"33 22 0:33 / /direct rw - autofs map rw\n"
			"34 33 0:34 / /direct rw - nfs4 known:/direct rw\n";
	FILE *f = fmemopen(mounts, strlen(mounts), "r");

	ck_assert_msg(df_source_mounts(files[_i].file, f) == files[_i].refused, "%s",
		      files[_i].file);
	fclose(f);
}
END_TEST

int main(void)
{
	return DF_TESTS("names", {test_mounts, sizeof(files) / sizeof(*files)},
			{test_outputs, sizeof(outputs) / sizeof(*outputs)},
			{test_clean, sizeof(texts) / sizeof(*texts)});
}
