/* `dfshim algo verify`: prints the properties of programs, or where and why one was refused. */
#include <stdint.h>
#include <stdio.h>

#include "runtime/base/err.h"
#include "runtime/program/build/cost.h"
#include "trace/cli/algo/algo.h"
#include "trace/cli/common/cli.h"
#include "trace/say/json.h"

static void say_slots(char *buf, size_t size, int64_t slots)
{
	if (slots > 0)
		snprintf(buf, size, "%lld", (long long)slots);
	else
		snprintf(buf, size, "none up to %d", DF_MAX_SLOTS);
}

static void say_valid(const char *name, const struct df_algo_file *f)
{
	const struct df_plan *p = f->plan;
	uint32_t blocks = 0, insts = 0;
	char one[32], all[32];

	for (int r = 0; r < p->nranks; r++) {
		blocks = DF_MAX(blocks, f->progs[r]->nr_blocks);
		insts = DF_MAX(insts, f->progs[r]->nr_inst);
	}
	printf("%s: valid\n", name);
	printf("  %s, %d ranks, %u chunks, at most %u blocks and %u instructions a rank, hash "
	       "%016llx\n",
	       df_coll_kind_name(p->kind), p->nranks, p->chunks, blocks, insts,
	       (unsigned long long)f->progs[0]->hash);
	printf("  smallest slot count: %u (a step is one slice: for every size)\n", f->v.min_slots);
	if (p->max_bytes)
		printf("  size limits: %llu to %llu bytes per count (declared)\n",
		       (unsigned long long)p->min_bytes, (unsigned long long)p->max_bytes);
	else
		printf("  size limits: %llu bytes per count and up\n",
		       (unsigned long long)p->min_bytes);
	if (f->is_msccl) {
		say_slots(one, sizeof(one), f->msccl.slots_step);
		say_slots(all, sizeof(all), f->msccl.slots_chunk);
		printf("  by MSCCL's rules: %s slots with one transfer per step, %s with one per "
		       "chunk; ",
		       one, all);
		if (f->msccl.max_bytes == UINT64_MAX)
			printf("with %s it deadlocks at every size\n", df_proto_name(p->proto));
		else if (f->msccl.max_bytes)
			printf("with %s it deadlocks above %llu bytes\n", df_proto_name(p->proto),
			       (unsigned long long)f->msccl.max_bytes);
		else
			printf("with %s at every size\n", df_proto_name(p->proto));
		if (f->msccl.split)
			printf("  steps over several chunks were split: they mixed input with "
			       "results\n");
	}
	if (f->staged)
		printf("  writes to its input: it copies that first and works on the copy\n");
	printf("  %s\n",
	       f->v.in_place ? "right in place and out of place"
	       : f->plan->kind == DF_COLL_ALLTOALL || f->plan->kind == DF_COLL_CUSTOM
		       ? "right out of place"
		       : "right out of place only: under DFSHIM_ALGO it copies its input first");
	if (!f->v.has_post)
		printf("  custom collective without expectations: checked for deadlock, races and "
		       "empty chunks only\n");
	if (!f->v.same_order)
		printf("  ranks reduce in different orders: floating-point results differ between "
		       "ranks\n");
	if (f->v.whole_chunks)
		printf("  only for counts that are a multiple of %u\n", p->chunks);
}

static int json_refused(const char *name, const struct df_perr *err)
{
	const struct {
		const char *key;
		int value;
	} at[] = {{"line", err->line},
		  {"rank", err->rank},
		  {"block", err->block},
		  {"step", err->step}};
	json_t *o = json_pack("{s:o, s:b}", "file", df_json_text(name), "valid", 0);

	for (unsigned i = 0; i < DF_ARRAY_LEN(at); i++)
		if (at[i].value >= 0)
			json_object_set_new(o, at[i].key, json_integer(at[i].value));
	json_object_set_new(o, "reason", df_json_text(err->text));
	return df_json_line(o, stdout);
}

static int json_valid(const char *name, const struct df_algo_file *f)
{
	json_t *o = json_pack(
		"{s:o, s:b, s:s, s:i, s:i, s:i, s:o, s:o, s:b, s:b, s:b, s:b, s:b}", "file",
		df_json_text(name), "valid", 1, "kind", df_coll_kind_name(f->plan->kind), "ranks",
		f->plan->nranks, "chunks", (int)f->plan->chunks, "min_slots", (int)f->v.min_slots,
		"min_bytes", df_json_u64(f->plan->min_bytes), "max_bytes",
		df_json_u64(f->plan->max_bytes), "in_place", f->v.in_place != 0, "copies_input",
		f->staged != 0, "postcondition", f->v.has_post != 0, "same_order",
		f->v.same_order != 0, "whole_chunks", f->v.whole_chunks != 0);

	if (f->is_msccl) {
		json_object_set_new(o, "msccl_slots_step", json_integer(f->msccl.slots_step));
		json_object_set_new(o, "msccl_slots_chunk", json_integer(f->msccl.slots_chunk));
		json_object_set_new(o, "msccl_max_bytes",
				    f->msccl.max_bytes == UINT64_MAX
					    ? json_null()
					    : df_json_u64(f->msccl.max_bytes));
	}
	return df_json_line(o, stdout);
}

int df_algo_verify(const struct df_algo_args *a)
{
	int worst = 0;

	if (!a->nr_files)
		return df_cli_usage_error("algo", "verify: a file or name is needed");
	for (int i = 0; i < a->nr_files; i++) {
		struct df_algo_file *f = NULL;
		struct df_perr err;
		int rc = df_algo_load(a, a->file[i], &f, &err), status = 0;

		if (a->json && (rc ? json_refused(a->file[i], &err) : json_valid(a->file[i], f)))
			status = df_cli_input_error("algo", a->file[i], "out of memory");
		if (rc)
			status = df_algo_refused(a->file[i], &err, rc);
		else if (!a->json)
			say_valid(a->file[i], f);
		worst = DF_MAX(worst, status);
		df_algo_free(f);
	}
	return worst;
}
