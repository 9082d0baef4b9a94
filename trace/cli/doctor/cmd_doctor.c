/*
 * `dfshim doctor`: which executor may use this machine's GPUs, the daemon or NCCL's kernels on
 * lanes? Collects facts, tests each GPU, compares the daemon's times with NCCL's, stores the
 * results that a job with DFSHIM_BACKEND=auto uses (runtime/evidence), and prints all of it so that
 * the output is a good bug report. One thread; work that may crash or hang runs in processes of its
 * own (part.c).
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "runtime/evidence/evidence_file.h"
#include "trace/cli/cmd.h"
#include "trace/cli/common/cli.h"
#include "trace/cli/doctor/doctor.h"
#include "trace/cli/run/run.h"
#include "trace/say/json.h"

#define EXIT_TAKE  0
#define EXIT_LEAVE 3
#define FACTS_MAX  16
#define ROWS_MAX   (DF_EVIDENCE_GPUS * 9 + 2)
#define FIGURES	   4
#define PYTHON_S   10.0 /* maximum wait for an import of PyTorch from a slow disk */
/* Below this speed relative to NCCL, a job that would not hang should not use the daemon. */
#define RATIO_LEAST 0.9
/*
 * Times are measured in pairs, the daemon's and NCCL's one after the other, because other work of
 * the machine varies. One pair is enough if the daemon is 1.5 times (CLEAR) as fast as required.
 * Otherwise three pairs are measured, and five if their median is within that factor of the limit.
 */
#define PAIRS 5
#define CLEAR 1.5

static const struct {
	const char *part, *name, *what, *otherwise;
} checks[] = {
#define DF_CHECK(name, what, otherwise) {"test", #name, what, otherwise},
	DF_DOCTOR_CHECKS(DF_CHECK)
#undef DF_CHECK
#define DF_CHECK(name, what, otherwise) {"lanes", #name, what, otherwise},
		DF_DOCTOR_LANE_CHECKS(DF_CHECK)
#undef DF_CHECK
#define DF_CHECK(name, what, otherwise) {"nccl", #name, what, otherwise},
			DF_DOCTOR_NCCL_CHECKS(DF_CHECK)
#undef DF_CHECK
};
#define NR_CHECKS DF_ARRAY_LEN(checks)

enum outcome { FAILED, OK, NOT_SHOWN };

static struct df_evidence_facts facts;
static struct {
	char name[24], value[768];
} versions[FACTS_MAX];
static int nr_versions;

static struct row {
	int gpu;
	size_t check;
	enum outcome outcome;
	char seen[256];
} rows[ROWS_MAX];
static int nr_rows;

static struct gpu {
	size_t begun; /* the check that is running */
	/* indexed by enum df_evidence_of */
	enum df_evidence_word word[2];
	char reason[2][256];
} gpus[DF_EVIDENCE_GPUS];
static char untested[DF_EVIDENCE_GPUS][200]; /* why a GPU cannot be tested now */

static struct figure {
	char name[16];
	double us[PAIRS][2]; /* times of the daemon and of NCCL */
	int median;	     /* index of the pair whose ratio is the median */
} figures[FIGURES];
static int nr_figures, nr_pairs;
static char unable[200]; /* reason why a part that belongs to no GPU failed */
static int quiet, done, total;

/* ---- reports of the parts ---------------------------------------------------------------- */

static void keep_check(int gpu, const char *name, const char *result, const char *seen)
{
	struct row *r = &rows[nr_rows];
	size_t i;

	for (i = 0; i < NR_CHECKS && strcmp(checks[i].name, name) != 0; i++)
		;
	if (i == NR_CHECKS || nr_rows == ROWS_MAX)
		return;
	*r = (struct row){.gpu = gpu,
			  .check = i,
			  .outcome = !strcmp(result, "ok")	    ? OK
				     : !strcmp(result, "not shown") ? NOT_SHOWN
								    : FAILED};
	snprintf(r->seen, sizeof(r->seen), "%s", seen);
	nr_rows++;
}

static void keep_figure(int ours, const char *name, double us)
{
	int i;

	for (i = 0; i < nr_figures && strcmp(figures[i].name, name) != 0; i++)
		;
	if (i == FIGURES)
		return;
	if (i == nr_figures) {
		snprintf(figures[i].name, sizeof(figures[i].name), "%s", name);
		nr_figures++;
	}
	figures[i].us[nr_pairs][!ours] = us;
}

static void progress(const char *name, int gpu)
{
	char what[64];

	snprintf(what, sizeof(what), "testing GPU %d: %s", gpu, name);
	df_cli_progress(what, (uint64_t)done, (uint64_t)total);
}

static void take_line(struct df_doctor_part *p, char *text)
{
	char *word = strsep(&text, "\t"), *a = strsep(&text, "\t"), *b = strsep(&text, "\t");
	struct gpu *g = &gpus[p->gpu];
	size_t n = strlen(facts.common);

	if (!a)
		return;
	if (!strcmp(word, "key") && n + strlen(a) + 2 < sizeof(facts.common)) {
		sprintf(facts.common + n, "%s\n", a);
	} else if (!strcmp(word, "gpu") && facts.nr_gpus < DF_EVIDENCE_GPUS) {
		snprintf(facts.gpu[facts.nr_gpus], sizeof(facts.gpu[0]), "%s", a);
		facts.nr_gpus++;
	} else if (!strcmp(word, "refused")) {
		snprintf(facts.refused, sizeof(facts.refused), "%s", a);
	} else if (!strcmp(word, "fact") && b && nr_versions < FACTS_MAX) {
		snprintf(versions[nr_versions].name, sizeof(versions[0].name), "%s", a);
		snprintf(versions[nr_versions].value, sizeof(versions[0].value), "%s", b);
		nr_versions++;
	} else if (!strcmp(word, "unable")) {
		char *to = strcmp(p->name, "speed") && strcmp(p->name, "facts") ? untested[p->gpu]
										: unable;

		snprintf(to, sizeof(untested[0]), "%s", a);
	} else if (!strcmp(word, "begin")) {
		for (size_t i = 0; i < NR_CHECKS; i++)
			if (!strcmp(checks[i].name, a))
				g->begun = i;
		progress(a, p->gpu);
	} else if (!strcmp(word, "check") && b) {
		keep_check(p->gpu, a, b, text ? text : "");
		done++;
	} else if (!strcmp(word, "figure") && b) {
		keep_figure(p->ours, a, atof(b));
	}
}

/* Describes how a part failed; writes "" if it returned 0 in time. */
static void ending(const struct df_doctor_part *p, double seconds, char *to, size_t size)
{
	*to = '\0';
	if (p->late)
		snprintf(to, size, "no end within %g s", seconds);
	else if (WIFSIGNALED(p->status))
		snprintf(to, size, "ended by signal %d (%s)", WTERMSIG(p->status),
			 strsignal(WTERMSIG(p->status)));
	else if (WEXITSTATUS(p->status))
		snprintf(to, size, "ended with status %d", WEXITSTATUS(p->status));
}

/* ---- the work ---------------------------------------------------------------------------- */

/*
 * Returns the failed check of a part that has ended, or NULL. If the part died or was killed during
 * a check, this check has failed.
 */
static const struct row *failed_row(struct df_doctor_part *p, double seconds)
{
	size_t nr = 0, all = 0;
	const struct row *bad = NULL;
	char end[128];

	for (size_t i = 0; i < NR_CHECKS; i++)
		all += !strcmp(checks[i].part, p->name);
	for (int i = 0; i < nr_rows; i++) {
		if (rows[i].gpu != p->gpu || strcmp(checks[rows[i].check].part, p->name) != 0)
			continue;
		nr++;
		if (rows[i].outcome == FAILED)
			bad = &rows[i];
	}
	ending(p, seconds, end, sizeof(end));
	if (!bad && nr < all && !*untested[p->gpu]) {
		size_t begun = gpus[p->gpu].begun;

		if (strcmp(checks[begun].part, p->name) != 0)
			for (begun = 0; strcmp(checks[begun].part, p->name) != 0;)
				begun++;
		keep_check(p->gpu, checks[begun].name, "failed", *end ? end : "ended too early");
		bad = &rows[nr_rows - 1];
	}
	if (bad && *p->words && !quiet)
		fprintf(stderr, "dfshim doctor: GPU %d: output of the failed part:\n%s\n", p->gpu,
			p->words);
	return bad;
}

/* Sets the daemon's result from the test of a GPU, before speed is compared. */
static void judge_gpu(struct df_doctor_part *p, double seconds)
{
	const struct row *bad = failed_row(p, seconds);
	char *reason = gpus[p->gpu].reason[DF_EVIDENCE_DAEMON];
	size_t size = sizeof(gpus[0].reason[0]);

	if (*untested[p->gpu]) {
		snprintf(reason, size, "it cannot be tested now: %s", untested[p->gpu]);
		return;
	}
	gpus[p->gpu].word[DF_EVIDENCE_DAEMON] = bad ? DF_EVIDENCE_FAIL : DF_EVIDENCE_TAKE;
	if (bad)
		snprintf(reason, size, "its self-test failed: %s (%s): %.150s",
			 checks[bad->check].name, checks[bad->check].what, bad->seen);
}

static const char *version_of(const char *name)
{
	for (int i = 0; i < nr_versions; i++)
		if (!strcmp(versions[i].name, name))
			return versions[i].value;
	return "";
}

static double ratio_of(const struct figure *f, int pair)
{
	return f->us[pair][0] > 0 ? f->us[pair][1] / f->us[pair][0] : 0;
}

/* Returns the figure at which the daemon is slowest, each by the median of its pairs. */
static const struct figure *slowest(void)
{
	const struct figure *worst = NULL;

	for (int i = 0; i < nr_figures; i++) {
		struct figure *f = &figures[i];

		for (int k = 0; k < nr_pairs; k++) {
			int below = 0, equal = 0;

			for (int j = 0; j < nr_pairs; j++) {
				below += ratio_of(f, j) < ratio_of(f, k);
				equal += ratio_of(f, j) == ratio_of(f, k);
			}
			if (below <= nr_pairs / 2 && nr_pairs / 2 < below + equal)
				f->median = k;
		}
		if (!worst || ratio_of(f, f->median) < ratio_of(worst, worst->median))
			worst = f;
	}
	return worst;
}

static int decided(void)
{
	const struct figure *f = slowest();
	double ratio = f ? ratio_of(f, f->median) : 0;

	return !f || nr_pairs == PAIRS || (nr_pairs % 2 && ratio >= RATIO_LEAST * CLEAR) ||
	       (nr_pairs == 3 && ratio < RATIO_LEAST / CLEAR);
}

/* Measures the daemon's times, then NCCL's. Returns -1 with the reason if there are none. */
static int take_pair(const struct df_doctor_opts *o, const char *library, char *why, size_t size)
{
	struct df_doctor_part part[2] = {
		{.name = "speed", .ours = 1},
		{.name = "speed", .nccl = o->nccl ? o->nccl : "libnccl.so.2"}};
	char end[128];

	for (int i = 0; i < 2; i++) {
		progress(i ? "NCCL's speed" : "speed", 0);
		df_doctor_run(&part[i], 1, o->timeout, library, take_line);
		done++;
		ending(&part[i], o->timeout, end, sizeof(end));
		if (!*end && !*unable)
			continue;
		snprintf(why, size, "it works here, but %s could not be measured: %.150s",
			 i ? "NCCL's speed beside it" : "its speed", *unable ? unable : end);
		return -1;
	}
	nr_pairs++;
	return 0;
}

/*
 * Compares the daemon's speed with NCCL's, because a job that would not hang must not become
 * slower. The result is that of all GPUs that passed their test.
 */
static void judge_speed(const struct df_doctor_opts *o, const char *library)
{
	/*
	 * After this time the pairs measured until then decide, because a job waits for the result
	 * (decide.c).
	 */
	uint64_t until = df_now_ns() + (uint64_t)(o->timeout * 1e9);
	enum df_evidence_word word = DF_EVIDENCE_TAKE;
	const struct figure *f = NULL;
	char reason[256];

	if (!strncmp(version_of("NCCL"), "none", 4)) {
		word = DF_EVIDENCE_NONE;
		snprintf(reason, sizeof(reason),
			 "it works here, but no NCCL was found to compare its speed with (--nccl "
			 "FILE)");
	}
	while (word == DF_EVIDENCE_TAKE && (!nr_pairs || (!decided() && df_now_ns() < until)))
		if (take_pair(o, library, reason, sizeof(reason)))
			word = DF_EVIDENCE_LEAVE;
	if (word == DF_EVIDENCE_TAKE)
		f = slowest();
	if (f) {
		double ratio = ratio_of(f, f->median);

		word = ratio < RATIO_LEAST ? DF_EVIDENCE_LEAVE : DF_EVIDENCE_TAKE;
		snprintf(reason, sizeof(reason),
			 "%s: %.2f times NCCL's speed at %s (%.1f us, NCCL %.1f us, %d %s)",
			 word == DF_EVIDENCE_TAKE ? "its self-test passed here; at its slowest"
						  : "it works here, but is slower than NCCL",
			 ratio, f->name, f->us[f->median][0], f->us[f->median][1], nr_pairs,
			 nr_pairs > 1 ? "pairs" : "pair");
	}
	for (int i = 0; i < facts.nr_gpus; i++)
		if (gpus[i].word[DF_EVIDENCE_DAEMON] == DF_EVIDENCE_TAKE) {
			gpus[i].word[DF_EVIDENCE_DAEMON] = word;
			snprintf(gpus[i].reason[DF_EVIDENCE_DAEMON], sizeof(gpus[i].reason[0]),
				 "%s", reason);
		}
}

static int is_old_nccl(const char *version)
{
	int major = 0, minor = 0;

	return sscanf(version, "%d.%d", &major, &minor) != 2 || major < 2 ||
	       (major == 2 && minor < 19);
}

/* Returns the first check of NCCL's kernels with this outcome, or NULL. It counts for all GPUs. */
static const struct row *nccl_row(enum outcome outcome)
{
	for (int i = 0; i < nr_rows; i++)
		if (!strcmp(checks[rows[i].check].part, "nccl") && rows[i].outcome == outcome)
			return &rows[i];
	return NULL;
}

static void test_lanes(const struct df_doctor_opts *o, const char *library)
{
	static struct df_doctor_part parts[DF_EVIDENCE_GPUS], nccl;
	const struct row *bad[DF_EVIDENCE_GPUS] = {0}, *other;
	int i, old = is_old_nccl(version_of("NCCL"));

	for (i = 0; i < facts.nr_gpus; i++)
		parts[i] = (struct df_doctor_part){
			.name = "lanes", .gpu = i, .nccl = o->nccl ? o->nccl : "libnccl.so.2"};
	nccl = (struct df_doctor_part){.name = "nccl", .ours = 1, .on_lanes = 1, .nccl = o->nccl};
	if (!old) {
		memset(untested, 0, sizeof(untested));
		df_doctor_run(parts, facts.nr_gpus, o->timeout, library, take_line);
		df_doctor_run(&nccl, 1, o->timeout, library, take_line);
	}
	for (i = 0; i < facts.nr_gpus && !old; i++)
		bad[i] = failed_row(&parts[i], o->timeout);
	if (!old)
		failed_row(&nccl, o->timeout);
	for (i = 0; i < facts.nr_gpus; i++) {
		char *reason = gpus[i].reason[DF_EVIDENCE_LANES];
		size_t size = sizeof(gpus[0].reason[0]);
		const struct row *no = old ? NULL : bad[i] ? bad[i] : nccl_row(FAILED);

		if (!old && (*untested[i] || *untested[0])) {
			snprintf(reason, size, "they cannot be tested now: %.190s",
				 *untested[i] ? untested[i] : untested[0]);
			continue;
		}
		gpus[i].word[DF_EVIDENCE_LANES] = old || no ? DF_EVIDENCE_LEAVE : DF_EVIDENCE_TAKE;
		other = nccl_row(NOT_SHOWN);
		if (old)
			snprintf(reason, size, "NCCL before 2.19, or none, has no maxCTAs (%.100s)",
				 version_of("NCCL"));
		else if (no)
			snprintf(reason, size, "%s (%s): %.150s", checks[no->check].name,
				 checks[no->check].what, no->seen);
		else
			snprintf(reason, size, "their self-test passed here%s%.150s",
				 other ? "; not shown: opposite orders of NCCL's kernels, since "
				       : "",
				 other ? other->seen : "");
	}
}

/*
 * Stores each result as soon as it is known, because this process may be ended before all are
 * known.
 */
static void keep_results(void)
{
	static int said;
	int ret;

	for (int i = 0; i < 2 * facts.nr_gpus; i++) {
		const struct gpu *g = &gpus[i / 2];
		enum df_evidence_of of = i % 2;

		if (g->word[of] == DF_EVIDENCE_NONE)
			continue;
		ret = df_evidence_write(&facts, i / 2, of, g->word[of], g->reason[of]);
		if (ret && !said++)
			fprintf(stderr,
				"dfshim doctor: the result cannot be kept (%s), so each job makes "
				"the test again; set XDG_CACHE_HOME to a folder that you can "
				"write\n",
				strerror(-ret));
	}
}

/*
 * For a job: takes the stored results of the daemon. Returns 1 if all GPUs have one, so that only
 * lanes need a test.
 */
static int knows_daemon(void)
{
	for (int i = 0; i < facts.nr_gpus; i++) {
		struct gpu *g = &gpus[i];

		g->word[DF_EVIDENCE_DAEMON] =
			df_evidence_read(&facts, i, DF_EVIDENCE_DAEMON,
					 g->reason[DF_EVIDENCE_DAEMON], sizeof(g->reason[0]));
		if (g->word[DF_EVIDENCE_DAEMON] == DF_EVIDENCE_NONE)
			return 0;
	}
	return 1;
}

/* Whether to test lanes. For people this is always done; for a job only if it may use them. */
static int asks_for_lanes(void)
{
	if (!quiet || df_env()->executor == DF_EXECUTOR_NCCL)
		return 1;
	for (int i = 0; i < facts.nr_gpus; i++)
		if (gpus[i].word[DF_EVIDENCE_DAEMON] == DF_EVIDENCE_LEAVE)
			return df_env()->executor == DF_EXECUTOR_AUTO;
	return 0;
}

static void test_all(const struct df_doctor_opts *o, const char *library)
{
	static struct df_doctor_part parts[DF_EVIDENCE_GPUS];
	int i, passed = 0;

	total = (facts.nr_gpus + 1) * (int)NR_CHECKS + 2 * PAIRS;
	if (!quiet || !knows_daemon()) {
		for (i = 0; i < facts.nr_gpus; i++)
			parts[i] = (struct df_doctor_part){.name = "test", .gpu = i, .ours = 1};
		df_doctor_run(parts, facts.nr_gpus, o->timeout, library, take_line);
		for (i = 0; i < facts.nr_gpus; i++) {
			judge_gpu(&parts[i], o->timeout);
			passed += gpus[i].word[DF_EVIDENCE_DAEMON] == DF_EVIDENCE_TAKE;
		}
		if (passed)
			judge_speed(o, library);
		keep_results();
	}
	if (asks_for_lanes()) {
		test_lanes(o, library);
		keep_results();
	}
	df_cli_progress("", (uint64_t)total, (uint64_t)total);
}

/* The executor of a job with DFSHIM_BACKEND=auto. */
enum decision { LEAVE, BY_LANES, BY_DAEMON };

/* Whether this executor may use all GPUs. *reason is that of the first GPU that it may not use. */
static int all_take(enum df_evidence_of of, const char **reason)
{
	*reason = facts.nr_gpus ? gpus[0].reason[of] : unable;
	for (int i = 0; i < facts.nr_gpus; i++)
		if (gpus[i].word[of] != DF_EVIDENCE_TAKE) {
			*reason = gpus[i].reason[of];
			return 0;
		}
	return facts.nr_gpus > 0;
}

/*
 * Decides for the machine as runtime/device/decide.c does. A process uses all GPUs that it sees, or
 * none. If a daemon's checks have failed, lanes do not replace it.
 */
static enum decision whole(const char **reason, const char **lanes)
{
	*lanes = "";
	if (*facts.refused) {
		*reason = facts.refused;
		return LEAVE;
	}
	if (all_take(DF_EVIDENCE_DAEMON, reason))
		return BY_DAEMON;
	for (int i = 0; i < facts.nr_gpus; i++)
		if (gpus[i].word[DF_EVIDENCE_DAEMON] == DF_EVIDENCE_FAIL)
			return LEAVE;
	return all_take(DF_EVIDENCE_LANES, lanes) ? BY_LANES : LEAVE;
}

/* ---- for people -------------------------------------------------------------------------- */

static void print_text(enum decision decision, const char *reason, const char *lanes)
{
	char host[PATH_MAX];

	printf("%s: %s%s%s\n\n",
	       decision == BY_DAEMON		 ? "TAKE: the daemon may take the GPU"
	       : decision == BY_LANES		 ? "TAKE: NCCL executes, on lanes"
	       : facts.nr_gpus || *facts.refused ? "LEAVE: collectives are NCCL's on this machine"
	       : df_run_library("doctor", "libdfhost.so", host, sizeof(host))
		       ? "LEAVE: neither a GPU nor the CPU backend is here"
		       : "CPU: all subcommands work here, and `dfshim run` executes jobs on CPU "
			 "threads",
	       reason, *lanes && strcmp(lanes, reason) ? "; NCCL on lanes: " : "",
	       strcmp(lanes, reason) ? lanes : "");
	for (int i = 0; i < nr_versions; i++)
		printf("%-10s %s\n", versions[i].name, versions[i].value);
	for (int i = 0; i < facts.nr_gpus; i++)
		printf("GPU %-6d %s\n", i, facts.gpu[i]);
	fputs(facts.common, stdout);
	if (nr_rows)
		printf("\n%-4s %-9s %-7s %-45s %s\n", "GPU", "CHECK", "RESULT", "SEEN", "FOLLOWS");
	for (int i = 0; i < nr_rows; i++) {
		const struct row *r = &rows[i];

		printf("%-4d %-9s %-7s %-45s %s\n", r->gpu, checks[r->check].name,
		       r->outcome == OK	      ? "ok"
		       : r->outcome == FAILED ? "FAILED"
					      : "-",
		       r->seen, r->outcome == FAILED ? checks[r->check].otherwise : "");
	}
	if (nr_figures)
		printf("\n%-14s %12s %12s %8s\n", "ALL-REDUCE", "dfshim us", "NCCL us", "times");
	for (int i = 0; i < nr_figures; i++) {
		const struct figure *f = &figures[i];

		printf("%-14s %12.2f %12.2f %8.2f\n", f->name, f->us[f->median][0],
		       f->us[f->median][1], ratio_of(f, f->median));
	}
	if (decision == LEAVE && facts.nr_gpus)
		printf("\nDFSHIM_BACKEND=cuda uses the GPU anyway.\n");
	if (decision == BY_LANES)
		printf("\n"
		       "DFSHIM_EXECUTOR=daemon leaves such jobs to NCCL, recorded and watched.\n");
}

static json_t *outcome_json(enum outcome outcome)
{
	return outcome == NOT_SHOWN ? json_null() : json_boolean(outcome == OK);
}

static json_t *gpu_json(int i)
{
	/* The decision; "reason" says what failed. */
	static const char *const words[] = {[DF_EVIDENCE_NONE] = "none",
					    [DF_EVIDENCE_TAKE] = "take",
					    [DF_EVIDENCE_LEAVE] = "leave",
					    [DF_EVIDENCE_FAIL] = "leave"};
	json_t *list = json_array();
	char path[PATH_MAX] = "";

	for (int k = 0; k < nr_rows; k++)
		if (rows[k].gpu == i)
			json_array_append_new(list,
					      json_pack("{s:s, s:s, s:o, s:o, s:s}", "check",
							checks[rows[k].check].name, "what",
							checks[rows[k].check].what, "ok",
							outcome_json(rows[k].outcome), "seen",
							df_json_text(rows[k].seen), "follows",
							rows[k].outcome == FAILED
								? checks[rows[k].check].otherwise
								: ""));
	df_evidence_path(&facts, i, DF_EVIDENCE_DAEMON, path, sizeof(path));
	return json_pack("{s:i, s:o, s:s, s:o, s:s, s:o, s:o, s:o}", "gpu", i, "facts",
			 df_json_text(facts.gpu[i]), "result",
			 words[gpus[i].word[DF_EVIDENCE_DAEMON]], "reason",
			 df_json_text(gpus[i].reason[DF_EVIDENCE_DAEMON]), "lanes",
			 words[gpus[i].word[DF_EVIDENCE_LANES]], "lanes_reason",
			 df_json_text(gpus[i].reason[DF_EVIDENCE_LANES]), "checks", list, "file",
			 df_json_text(path));
}

static json_t *figure_json(const struct figure *f)
{
	const double *us = f->us[f->median];

	return json_pack("{s:s, s:o, s:o, s:i}", "name", f->name, "dfshim_us", df_json_milli(us[0]),
			 "nccl_us", df_json_milli(us[1]), "pairs", nr_pairs);
}

static int print_json(enum decision decision, const char *reason)
{
	static const char *const executors[] = {
		[LEAVE] = "none", [BY_LANES] = "nccl", [BY_DAEMON] = "daemon"};
	json_t *v = json_object(), *list = json_array(), *speed = json_array();

	for (int i = 0; i < nr_versions; i++)
		json_object_set_new(v, versions[i].name, df_json_text(versions[i].value));
	for (int i = 0; i < facts.nr_gpus; i++)
		json_array_append_new(list, gpu_json(i));
	for (int i = 0; i < nr_figures; i++)
		json_array_append_new(speed, figure_json(&figures[i]));
	return df_json_line(json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "verdict",
				      decision ? "take" : "leave", "executor", executors[decision],
				      "reason", df_json_text(reason), "versions", v, "settings",
				      df_json_text(facts.common), "gpus", list, "speed", speed),
			    stdout);
}

/* ---- command line ------------------------------------------------------------------------ */

/* Finds the PyTorch of this machine. For people: no result depends on it. */
static void ask_python(double seconds)
{
	struct df_doctor_part p = {.name = "python"};
	char late[] = "fact\tits NCCL\tunknown: python3 does not import torch within 10 s";

	df_doctor_run(&p, 1, DF_MIN(seconds, PYTHON_S), NULL, take_line);
	if (p.late)
		take_line(&p, late);
	else if (WIFSIGNALED(p.status) || WEXITSTATUS(p.status))
		fprintf(stderr, "dfshim doctor: python3 did not report its PyTorch: %s\n", p.words);
}

static int run_part(const struct df_doctor_opts *o)
{
	if (!strcmp(o->part, "facts"))
		return df_doctor_facts(o);
	if (!strcmp(o->part, "python"))
		return df_doctor_python();
	if (!strcmp(o->part, "lanes"))
		return df_doctor_lanes(o);
	if (!strcmp(o->part, "nccl"))
		return df_doctor_nccl(o);
	return !strcmp(o->part, "test") ? df_doctor_trial(o) : df_doctor_speed(o);
}

int df_cmd_doctor(int argc, char **argv)
{
	struct df_doctor_opts o = {.timeout = 20};
	struct df_doctor_part first = {.name = "facts"};
	char library[PATH_MAX];
	const char *reason, *lanes;
	enum decision decision;
	int json = 0, status;
	const struct df_opt options[] = {
		DF_OPT(JSON, json, NULL),
		DF_OPT_AS(TIMEOUT, "SECONDS", o.timeout,
			  "end a part of the test after this time (20)"),
		DF_TEXT("nccl", "FILE", o.nccl, "the NCCL to compare with (libnccl.so.2)"),
		DF_FLAG("job", quiet, NULL),
		DF_WORD("part", "facts|python|test|speed|lanes|nccl", o.part, NULL),
		DF_NUMBER("gpu", "N", o.gpu, 0, DF_EVIDENCE_GPUS - 1, NULL),
	};

	DF_CLI_PARSE("doctor", &argc, &argv,
		     .doc = "Tests whether dfshim's daemon, or NCCL's kernels on lanes, may take "
			    "this machine's GPUs, keeps the result for jobs with "
			    "DFSHIM_BACKEND=auto, and prints it with all versions: paste it into a "
			    "report.\vExit status: 0 dfshim may take the GPUs, 3 it may not (no "
			    "GPU included), 1 the test could not be made, 2 wrong usage.");
	if (o.part)
		return run_part(&o);
	/* Parts must not inherit open files of the job, which started this process. */
	if (quiet)
		syscall(SYS_close_range, 3u, ~0u, 0u);
	if (df_run_library("doctor", "libdfshim.so", library, sizeof(library)))
		return 1;
	first.nccl = o.nccl;
	df_doctor_run(&first, 1, o.timeout, library, take_line);
	if (!quiet)
		ask_python(o.timeout);
	if (first.late && !facts.nr_gpus)
		snprintf(unable, sizeof(unable), "the CUDA driver does not answer within %g s",
			 o.timeout);
	if (!*unable && !facts.nr_gpus)
		snprintf(unable, sizeof(unable), "the GPUs could not be listed");
	if (facts.nr_gpus && !*facts.refused) {
		*unable = '\0';
		test_all(&o, library);
	}
	decision = whole(&reason, &lanes);
	status = decision == LEAVE ? EXIT_LEAVE : EXIT_TAKE;
	if (quiet)
		return status;
	if (json)
		return print_json(decision, decision == BY_LANES ? lanes : reason) ? 1 : status;
	print_text(decision, reason, lanes);
	return status;
}
