/*
 * Files of users: every refusal names the exact line and reason. Tables of files are searched in
 * order, by kind, ranks, root and size. Also tests the tuner's file and NCCL's variables.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/program/file/algofile.h"
#include "runtime/program/file/canon.h"
#include "runtime/program/verify/exec.h"
#include "runtime/program/build/tuner.h"
#include "runtime/program/program_names.h"
#include "tests/lib/test.h"

#define ALGO                                                                                       \
	"<algo name=\"t\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"1\" ngpus=\"2\" "      \
	"coll=\"broadcast\" inplace=\"1\">\n"
#define GPU0 "<gpu id=\"0\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\">\n"
#define GPU1 "<gpu id=\"1\" i_chunks=\"1\" o_chunks=\"1\" s_chunks=\"0\">\n"
#define TB_S "<tb id=\"0\" send=\"1\" recv=\"-1\" chan=\"0\">\n"
#define TB_R "<tb id=\"0\" send=\"-1\" recv=\"0\" chan=\"0\">\n"
#define STEP(n, op, sb, so, db, dn, cnt, dep, deps, has)                                           \
	"<step s=\"" #n "\" type=\"" op "\" srcbuf=\"" sb "\" srcoff=\"" #so "\" dstbuf=\"" db     \
	"\" dstoff=\"" #dn "\" cnt=\"" #cnt "\" depid=\"" #dep "\" deps=\"" #deps                  \
	"\" hasdep=\"" #has "\"/>\n"
#define SEND	STEP(0, "s", "i", 0, "i", 0, 1, -1, -1, 0)
#define RECV	STEP(0, "r", "i", 0, "i", 0, 1, -1, -1, 0)
#define END_GPU "</tb>\n</gpu>\n"
#define REST	GPU1 TB_R RECV END_GPU "</algo>\n"
#define GOOD	ALGO GPU0 TB_S SEND END_GPU REST

#define SIZED(coll, sizes)                                                                         \
	"<algo name=\"t\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"1\" ngpus=\"2\" "          \
	"coll=\"" coll "\" inplace=\"1\" " sizes ">\n" GPU0 TB_S SEND END_GPU REST

static int parse(const char *text, struct df_algo_file **a, struct df_perr *err)
{
	df_perr_clear(err);
	*a = NULL;
	return df_algo_parse("f.xml", text, strlen(text), a, err);
}

static void refuse(const char *text, const char *message)
{
	struct df_algo_file *a;
	struct df_perr err;
	char have[600];
	int rc = parse(text, &a, &err);

	ck_assert_msg(rc == -EPROTO, "%d: %s", rc, text);
	df_perr_str(&err, have, sizeof(have));
	ck_assert_str_eq(have, message);
}

START_TEST(t_xml_form)
{
	struct df_algo_file *a;
	struct df_perr err;

	ck_assert_msg(parse(GOOD, &a, &err) == 0, "%s", err.text);
	ck_assert_int_eq(a->v.in_place, 1);
	df_algo_free(a);
	/*
	 * Forms of other writers: declaration, comments, apostrophes, line breaks, unknown
	 * attributes.
	 */
	ck_assert_msg(parse("<?xml version=\"1.0\"?>\n<!-- by hand -->\n"
			    "<algo name='t &amp; u' proto='LL'\n"
			    "\tnchannels='1' nchunksperloop='0x1' ngpus='2' coll='Broadcast' "
			    "inplace='1' redop='sum'>" GPU0 TB_S SEND END_GPU "<!-- - -->" REST,
			    &a, &err) == 0,
		      "%s", err.text);
	ck_assert_str_eq(a->plan->name, "t & u");
	df_algo_free(a);

	/* Ranges of sizes of the whole buffer: half open in MSCCL's dialect, closed in RCCL's. */
	ck_assert_int_eq(parse(SIZED("broadcast", "minBytes=\"10\" maxBytes=\"1024\""), &a, &err),
			 0);
	ck_assert_uint_eq(a->plan->min_bytes, 10);
	ck_assert_uint_eq(a->plan->max_bytes, 1023);
	df_algo_free(a);
	ck_assert_int_eq(
		parse(SIZED("broadcast", "outofplace=\"0\" minBytes=\"0\" maxBytes=\"1024\""), &a,
		      &err),
		0);
	ck_assert_uint_eq(a->plan->max_bytes, 1024);
	df_algo_free(a);
	ck_assert_int_eq(parse(SIZED("broadcast", "outofplace=\"1\" minBytes=\"0\" maxBytes=\"0\""),
			       &a, &err),
			 -EPROTO);
	refuse(SIZED("broadcast", "minBytes=\"0\" maxBytes=\"0\""),
	       "f.xml:1: maxBytes=0 excludes every size");
	refuse(SIZED("broadcast", "minBytes=\"9\" maxBytes=\"9\""),
	       "f.xml:1: maxBytes is below minBytes");

	refuse("", "f.xml:0: is empty");
	refuse("  <", "f.xml:1: expected the name of an element");
	refuse("<algo", "f.xml:1: expected a space, '>' or '/>' in <algo>");
	refuse("<algo name=\"x", "f.xml:1: value of attribute name does not end");
	refuse("<algo name=x>", "f.xml:1: value of attribute name is not in quotes");
	refuse("<algo name=\"x\"name=\"y\">", "f.xml:1: expected a space, '>' or '/>' in <algo>");
	refuse("<algo name=\"x\" name=\"y\">", "f.xml:1: attribute name is given twice");
	refuse("<algo name=\"&bad;\">", "f.xml:1: unknown entity in attribute name");
	refuse("<!-- x", "f.xml:1: comment does not end");
	refuse("<!DOCTYPE x><a/>", "f.xml:1: expected the name of an element");
	refuse("<topo/>", "f.xml:1: top element is <topo>, not <algo>");
	refuse("<algo/>", "f.xml:1: <algo>: attribute name is missing");
	refuse(ALGO, "f.xml:2: <algo> is not closed");
	refuse(ALGO "</gpu>", "f.xml:2: </gpu> closes <algo>");
	refuse(ALGO "text</algo>", "f.xml:2: text where an element is expected");
	refuse(ALGO "<tb/></algo>", "f.xml:2: <tb> does not belong here");
	refuse(GOOD "<algo/>", "f.xml:13: more than one top element");
}
END_TEST

START_TEST(t_xml_meaning)
{
	refuse(ALGO "</algo>", "f.xml:1: 0 <gpu> elements, but ngpus is 2");
	refuse("<algo name=\"t\" proto=\"LL64\" nchannels=\"1\" nchunksperloop=\"1\" ngpus=\"2\" "
	       "coll=\"broadcast\" inplace=\"1\"/>",
	       "f.xml:1: proto \"LL64\" is none of Simple, LL, LL128");
	refuse("<algo name=\"t\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"1\" ngpus=\"2\" "
	       "coll=\"alltoallv\" inplace=\"1\"/>",
	       "f.xml:1: coll \"alltoallv\" is not a collective that a file can define");
	refuse("<algo name=\"t\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"0\" ngpus=\"2\" "
	       "coll=\"broadcast\" inplace=\"1\"/>",
	       "f.xml:1: <algo>: nchunksperloop=0 is outside 1..1048576");
	refuse("<algo name=\"t\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"3\" ngpus=\"2\" "
	       "coll=\"allgather\" inplace=\"1\"></algo>",
	       "f.xml:1: nchunksperloop 3 is not a multiple of ngpus 2");
	refuse("<algo name=\"t\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"2x\" ngpus=\"2\" "
	       "coll=\"allgather\" inplace=\"1\"/>",
	       "f.xml:1: <algo>: nchunksperloop=\"2x\" is not a number");
	refuse("<algo name=\"t\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"2\" ngpus=\"2\" "
	       "coll=\"alltoall\" inplace=\"0\" outofplace=\"0\"/>",
	       "f.xml:1: is for neither in-place nor out-of-place calls");
	refuse(ALGO GPU0 TB_S SEND END_GPU GPU0, "f.xml:7: rank 0: is defined twice");
	refuse(ALGO GPU0 "<tb id=\"0\" send=\"0\" recv=\"-1\" chan=\"0\"/></gpu>" REST,
	       "f.xml:3: rank 0 block 0: has itself as peer");
	refuse(ALGO GPU0 "<tb id=\"0\" send=\"1\" recv=\"-1\" chan=\"1\"/></gpu>" REST,
	       "f.xml:3: rank 0 block 0: chan 1 is outside 0..0 (nchannels)");
	refuse(ALGO GPU0 "<tb id=\"1\" send=\"1\" recv=\"-1\" chan=\"0\"/></gpu>" REST,
	       "f.xml:3: rank 0 block 1: block numbers are not 0..0");
	refuse(ALGO GPU0 TB_S STEP(1, "s", "i", 0, "i", 0, 1, -1, -1, 0) END_GPU REST,
	       "f.xml:4: rank 0 block 0 step 1: step number is not its position, 0");
	refuse(ALGO GPU0 TB_S STEP(0, "ra", "i", 0, "i", 0, 1, -1, -1, 0) END_GPU REST,
	       "f.xml:4: rank 0 block 0 step 0: unknown type \"ra\"");
	refuse(ALGO GPU0 TB_S STEP(0, "s", "x", 0, "i", 0, 1, -1, -1, 0) END_GPU REST,
	       "f.xml:4: <step>: srcbuf is none of i, o, s");
	refuse(ALGO GPU0 TB_S STEP(0, "r", "i", 0, "i", 0, 1, -1, -1, 0) END_GPU REST,
	       "f.xml:4: rank 0 block 0 step 0: r in a block without a receive peer");
	refuse(ALGO GPU0 TB_S STEP(0, "s", "i", 0, "i", 0, 2, -1, -1, 0) END_GPU REST,
	       "f.xml:4: rank 0 block 0 step 0: source i[0..1] is outside the 1 chunks of the "
	       "buffer");
	refuse(ALGO GPU0 TB_S STEP(0, "s", "i", 0, "i", 0, 0, -1, -1, 0) END_GPU REST,
	       "f.xml:4: rank 0 block 0 step 0: cnt is 0");
	refuse(ALGO GPU0 TB_S STEP(0, "s", "i", 0, "i", 0, 1, 3, 0, 0) END_GPU REST,
	       "f.xml:4: rank 0 block 0 step 0: depends on block 3 step 0, which does not exist");
	refuse(ALGO GPU0 TB_S SEND STEP(1, "nop", "i", -1, "i", -1, 0, -1, -1, 0) END_GPU REST,
	       "f.xml:5: rank 0 block 0 step 1: nop that waits for nothing");
	refuse(ALGO GPU0 TB_S SEND STEP(
		       1, "cpy", "i", 0, "o", 0, 1, 1, 0,
		       0) "</tb><tb id=\"1\" send=\"-1\" recv=\"-1\" chan=\"0\">\n" STEP(0, "cpy",
											 "i", 0,
											 "o", 0, 1,
											 -1, -1, 0)
		       END_GPU REST,
	       "f.xml:5: rank 0 block 0 step 1: depends on block 1 step 0 (line 7), which has "
	       "hasdep=0");
	refuse(ALGO GPU0 TB_S SEND END_GPU GPU1 TB_R "</tb></gpu></algo>",
	       "f.xml:4: rank 0 block 0 step 0: connection 0 -> 1 channel 0 is sent on, but no "
	       "block receives from it");
	refuse(ALGO GPU0 TB_S END_GPU GPU1 "</gpu></algo>",
	       "f.xml:6: rank 1: output chunk 0 ends as nothing, must be 0:0; nothing writes it");
}
END_TEST

START_TEST(t_text_form)
{
#define T "dfprog 1\n"
	refuse("dfprog 2\n", "f.xml:1: version 2; this dfshim reads 1");
	refuse("hello\n", "f.xml:1: does not begin with \"dfprog 1\"");
	refuse(T "kind What\n", "f.xml:2: unknown kind \"What\"");
	refuse(T "ranks 0\n", "f.xml:2: 0 is less than 1");
	refuse(T "ranks many\n", "f.xml:2: expected a number: \"many\"");
	refuse(T "kind AllReduce\nchunks 1\nrank 0 in 1 out 1 scratch 0\n",
	       "f.xml:4: ranks is missing before the first rank");
	refuse(T "kind AllReduce\nranks 2\nchunks 1\nrank 2 in 1 out 1 scratch 0\n",
	       "f.xml:5: 2 is more than 1");
	refuse(T "kind AllReduce\nranks 2\nchunks 1\nrank 0 in 1 out 1 scratch 0\nblock 1\n",
	       "f.xml:6: rank 0: block 1 where 0 is next");
	refuse(T
	       "kind AllReduce\nranks 2\nchunks 1\nrank 0 in 1 out 1 scratch 0\nblock 0\nsend i0\n",
	       "f.xml:7: rank 0 block 0: send without \"to\"");
	refuse(T "kind AllReduce\nranks 2\nchunks 1\nrank 0 in 1 out 1 scratch 0\nblock 0\n"
		 "send x0 to 1\n",
	       "f.xml:7: rank 0 block 0: expected i, o or s with a chunk number, not \"x0\"");
	refuse(T
	       "kind AllReduce\nranks 2\nchunks 1\nrank 0 in 1 out 1 scratch 0\nblock 0\njump i0\n",
	       "f.xml:7: rank 0 block 0: unknown instruction \"jump\"");
	refuse(T "kind AllReduce\nranks 2\nchunks 1\nrank 0 in 1 out 1 scratch 0\nblock 0\n"
		 "send i0 to 1 x0\n",
	       "f.xml:7: rank 0 block 0: bad number of chunks \"x0\"");
}
END_TEST

static int nr_refused;

static void on_refused(void *arg, const struct df_perr *err)
{
	(void)arg;
	ck_assert_msg(strstr(err->file, "bad.xml") != NULL, "%s", err->file);
	nr_refused++;
}

static void put(const char *dir, const char *name, const char *text)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

START_TEST(t_table)
{
	struct df_prog_req q = {.kind = DF_COLL_BROADCAST,
				.nranks = 2,
				.count = 10,
				.elem_bytes = 4,
				.max_blocks = 1};
	struct df_algo_query query = {.req = &q, .type = DF_FLOAT32, .redop = DF_SUM};
	char dir[] = "/tmp/df_t_filesXXXXXX", list[400], why[400];
	struct df_algo_table *t, *u;
	struct df_program *p;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	put(dir, "b.xml", GOOD);
	put(dir, "bad.xml", ALGO);
	put(dir, "ignored.txt", "x");
	put(dir, "a.dfp",
	    "dfprog 1\nname small\nkind Broadcast\nranks 2\nchunks 1\nbytes 0 32\n"
	    "rank 0 in 1 out 1 scratch 0\nblock 0\nsend i0 to 1\ncopy i0 o0\n"
	    "rank 1 in 0 out 1 scratch 0\nblock 0\nrecv o0 from 0\n");
	ck_assert_int_eq(df_algo_table_load(dir, on_refused, NULL, &t), 0);
	ck_assert_int_eq(nr_refused, 1);
	ck_assert_uint_eq(t->nr, 2);
	/* Sorted by name, so a.dfp is first, up to 32 bytes. */
	ck_assert_str_eq(df_algo_find(t, &query, why, sizeof(why))->plan->name, "t");
	q.count = 8;
	ck_assert_str_eq(df_algo_find(t, &query, why, sizeof(why))->plan->name, "small");
	ck_assert_int_eq(df_program_select(t, NULL, &query, &p, NULL), 0);
	ck_assert_str_eq(p->name, "small");
	df_program_free(p);
#define NOT(reason)                                                                                \
	do {                                                                                       \
		ck_assert_ptr_null(df_algo_find(t, &query, why, sizeof(why)));                     \
		ck_assert_msg(strstr(why, reason) != NULL, "%s", why);                             \
	} while (0)
	q.root = 1;
	NOT("is for another root");
	/* If no file matches, the built-in program is used. */
	ck_assert_int_eq(df_program_select(t, NULL, &query, &p, NULL), 0);
	ck_assert_str_eq(p->name, "Broadcast direct");
	df_program_free(p);
	q.root = 0;
	q.nranks = 3;
	NOT("is for another number of ranks");
	q.nranks = 2;
	q.count = 0;
	NOT("there is nothing to move");
	/* Equal lists have equal hashes, different lists different ones. */
	snprintf(list, sizeof(list), "%s/a.dfp:%s/b.xml", dir, dir);
	ck_assert_int_eq(df_algo_table_load(list, NULL, NULL, &u), 0);
	ck_assert_uint_eq(u->hash, t->hash);
	df_algo_table_free(u);
	snprintf(list, sizeof(list), "%s/b.xml:%s/a.dfp:/nonexistent/bad.xml", dir, dir);
	ck_assert_int_eq(df_algo_table_load(list, on_refused, NULL, &u), 0);
	ck_assert_int_eq(nr_refused, 2);
	ck_assert_uint_ne(u->hash, t->hash);
	df_algo_table_free(u);
	df_algo_table_free(t);
	ck_assert_int_eq(df_algo_table_load(NULL, NULL, NULL, &u), 0);
	ck_assert_uint_eq(u->nr, 0);
	df_algo_table_free(u);
	snprintf(list, sizeof(list), "rm -r %s", dir);
	ck_assert_int_eq(system(list), 0);
}
END_TEST

/* An AllReduce that in place overwrites data that it has yet to send. */
#define OUT_ONLY                                                                                   \
	"dfprog 1\nname early\nkind AllReduce\nranks 2\nchunks 1\nin_place no\n"                   \
	"rank 0 in 1 out 1 scratch 0\nblock 0\nsend i0 to 1\n"                                     \
	"block 1\nrecvReduceCopy i0 o0 from 1\n"                                                   \
	"rank 1 in 1 out 1 scratch 0\nblock 0\nsend i0 to 0\nrecvReduceCopy i0 o0 from 0\n"

/*
 * A program that is right only out of place serves calls in place as well: it copies its input
 * first.
 */
START_TEST(t_staged)
{
	struct df_prog_req q = {.kind = DF_COLL_ALLREDUCE,
				.nranks = 2,
				.count = 10,
				.elem_bytes = 4,
				.max_blocks = 1};
	struct df_algo_query query = {.req = &q, .type = DF_INT32, .redop = DF_SUM};
	char dir[] = "/tmp/df_t_filesXXXXXX", list[400];
	struct df_algo_file *a;
	const struct df_algo_file *s;
	struct df_algo_table *t;
	struct df_algo_pick pick;
	struct df_program *p;
	struct df_perr err;

	df_perr_clear(&err);
	ck_assert_msg(!df_algo_parse("early", OUT_ONLY, strlen(OUT_ONLY), &a, &err), "%s",
		      err.text);
	ck_assert_int_eq(a->v.out_of_place, 1);
	ck_assert_int_eq(a->v.in_place, 0);
	df_algo_free(a);
	ck_assert_ptr_nonnull(mkdtemp(dir));
	put(dir, "early.dfp", OUT_ONLY);
	nr_refused = 0;
	ck_assert_int_eq(df_algo_table_load(dir, on_refused, NULL, &t), 0);
	ck_assert_int_eq(nr_refused, 0);
	s = df_algo_find(t, &query, NULL, 0);
	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(s->staged, 1);
	ck_assert_int_eq(s->v.in_place, 1);
	ck_assert_int_eq(s->v.out_of_place, 1);
	for (uint64_t i = 0; i < 40; i++) {
		struct df_exec_check c = {.progs = s->progs,
					  .kind = DF_COLL_ALLREDUCE,
					  .nranks = 2,
					  .count = i % 7,
					  .tile_elems = 1 + i % 3,
					  .in_place = i & 3,
					  .seed = i,
					  .type = DF_UINT32,
					  .redop = DF_SUM,
					  .slots = s->v.min_slots,
					  .instances = 2};

		ck_assert_msg(!df_exec_check(&c, &err), "%s", err.text);
	}
	ck_assert_int_eq(df_program_select(t, NULL, &query, &p, &pick), 0);
	ck_assert_int_eq(pick.staged, 1);
	df_program_free(p);
	df_algo_table_free(t);
	snprintf(list, sizeof(list), "rm -r %s", dir);
	ck_assert_int_eq(system(list), 0);
}
END_TEST

START_TEST(t_tuner)
{
	static const char text[] =
		"dftune 2\ncost inst_ns 100 byte_ns 0.1 reduce_ns 0.2 hop_ns 300 switch_ns 5000 "
		"block_ns 100 far_ns 1e4 far_inst_ns 1e3 far_byte_ns 1 cores 2 tile_bytes 65536\n"
		"AllReduce ranks 8 nodes 1 from 0 use tree blocks 2\n"
		"AllReduce ranks 8 nodes 1 from 4096 use ring blocks 4\n";
	struct df_prog_req q = {.kind = DF_COLL_ALLREDUCE,
				.nranks = 8,
				.count = 100,
				.elem_bytes = 4,
				.max_blocks = 8};
	struct df_tuner *t;
	struct df_perr err;
	uint32_t blocks = 8;
	char bad[64], ignored[64];

	df_perr_clear(&err);
	ck_assert_msg(df_tuner_parse(text, strlen(text), &t, &err) == 0, "%s", err.text);
	ck_assert_int_eq(df_tuner_choose(t, NULL, &q, &blocks, NULL), DF_ALGO_TREE);
	ck_assert_uint_eq(blocks, 2);
	q.count = 1024;
	blocks = 3;
	ck_assert_int_eq(df_tuner_choose(t, NULL, &q, &blocks, NULL), DF_ALGO_RING);
	ck_assert_uint_eq(blocks, 3);
#define ENV(var, value) df_tuner_env(t, var, value, bad, ignored, sizeof(bad))
	ck_assert_int_eq(ENV(DF_NCCL_ALGO, "^Ring,CollNetDirect"), 0);
	ck_assert_str_eq(ignored, "collnetdirect");
	ck_assert_int_eq(ENV(DF_NCCL_PROTO, "Simple,LL"), 0);
	blocks = 8;
	ck_assert_int_eq(df_tuner_choose(t, NULL, &q, &blocks, NULL), DF_ALGO_TREE);
	df_tuner_free(t);

	/* The model alone: few steps for little data, few bytes for much data. */
	ck_assert_int_eq(df_tuner_create(&df_cost_host, &t), 0);
	q.count = 64;
	blocks = 1;
	ck_assert_int_ne(df_tuner_choose(t, NULL, &q, &blocks, NULL), DF_ALGO_RING);
	q.count = 64 << 20;
	ck_assert_int_eq(df_tuner_choose(t, NULL, &q, &blocks, NULL), DF_ALGO_RING);
	ck_assert_int_eq(ENV(DF_NCCL_ALGO, "tree;broadcast:ring"), 0);
	ck_assert_int_eq(df_tuner_choose(t, NULL, &q, &blocks, NULL), DF_ALGO_TREE);
	q.kind = DF_COLL_BROADCAST;
	ck_assert_int_eq(df_tuner_choose(t, NULL, &q, &blocks, NULL), DF_ALGO_RING);
	/* A kind without a tree is not restricted. */
	q.kind = DF_COLL_ALLGATHER;
	ck_assert_int_ne(df_tuner_choose(t, NULL, &q, &blocks, NULL), DF_ALGO_AUTO);
	q.kind = DF_COLL_ALLREDUCE;
	/* An unknown name is reported and changes nothing. */
	static const struct {
		enum df_nccl_var var;
		const char *value, *bad;
	} no[] = {{DF_NCCL_ALGO, "stars", "stars"},
		  {DF_NCCL_ALGO, "ring,", ""},
		  {DF_NCCL_ALGO, "^", "^"},
		  {DF_NCCL_ALGO, "ring;allreduce:Simple", "Simple"},
		  {DF_NCCL_ALGO, "sendrecv:ring", "sendrecv"},
		  {DF_NCCL_PROTO, "LL,LL256", "LL256"},
		  {DF_NCCL_PROTO, "nonsense:LL", "nonsense"}};

	for (unsigned i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
		uint64_t hash = t->hash;

		ck_assert_int_eq(ENV(no[i].var, no[i].value), -EINVAL);
		ck_assert_str_eq(bad, no[i].bad);
		ck_assert_uint_eq(t->hash, hash);
	}
	ck_assert_int_eq(df_tuner_choose(t, NULL, &q, &blocks, NULL), DF_ALGO_TREE);
	df_tuner_free(t);

#define BAD(content, at, reason)                                                                   \
	do {                                                                                       \
		df_perr_clear(&err);                                                               \
		ck_assert_int_eq(df_tuner_parse(content, strlen(content), &t, &err), -EPROTO);     \
		ck_assert_int_eq(err.line, at);                                                    \
		ck_assert_msg(strstr(err.text, reason) != NULL, "%s", err.text);                   \
	} while (0)
	BAD("", 0, "is empty");
	BAD("dftune 9\n", 1, "version 9");
	BAD("dftune 2\nAllReduce ranks 8 nodes 1 from 0 use stars blocks 2\n", 2, "unknown stars");
	BAD("dftune 2\nrubbish\n", 2, "is not a row");
	BAD("dftune 2\nAllReduce ranks 8 nodes 0 from 0 use ring blocks 1\n", 2, "number of nodes");
	BAD("dftune 2\ncost inst_ns 1 byte_ns 2\n", 2, "reduce_ns is missing");
	BAD("dftune 2\ncost inst_ns -1 byte_ns 2\n", 2, "inst_ns is not a cost");
}
END_TEST

int main(void)
{
	return DF_TESTS("program files", {t_xml_form}, {t_xml_meaning}, {t_text_form}, {t_table},
			{t_staged}, {t_tuner});
}
