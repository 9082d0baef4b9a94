/*
 * Short texts for verdicts: names of operations, ranks and calls. The functions write into buf and
 * return buf unless their comment says otherwise.
 */
#ifndef DF_TRACE_JUDGE_SAY_H
#define DF_TRACE_JUDGE_SAY_H

#include <stddef.h>
#include <stdint.h>

#include "trace/judge/result.h"

const char *df_say_op(const struct df_check_set *set, const struct df_uop *u, char *buf,
		      size_t size);
const char *df_say_rank(const struct df_check_set *set, const struct df_uop *u, char *buf,
			size_t size);
const char *df_say_entry(const struct df_check_set *set, uint32_t entry, char *buf, size_t size);
/* The rank that users see for a rank of a communicator, or -1 if it is not known. */
int df_say_world_of(const struct df_check_set *set, uint32_t gcomm, int rank);
const char *df_say_member(const struct df_check_set *set, uint32_t gcomm, int rank, char *buf,
			  size_t size);
/* Writes "exited normally", "exited with status 1" and the like. */
const char *df_say_exit(int in_order, char *buf, size_t size);
/*
 * Returns the job's rank that a thread (0: any) serves on this device (-1: any). If the thread
 * serves none or several, returns the only rank on the device. Returns -1 if there is none or
 * several.
 */
int df_say_world(const struct df_check_set *set, const struct df_trc *t, int device, uint32_t tid);
/*
 * Writes the rank of a node's thread, work or slot. In a process with several ranks the device
 * selects it.
 */
const char *df_say_host(const struct df_graph *g, uint32_t node, char *buf, size_t size);
const char *df_say_node(const struct df_graph *g, uint32_t node, char *buf, size_t size);
/* Writes the frame of the call site after `skip` inner ones. */
const char *df_say_site(struct df_check_set *set, uint32_t trace, uint32_t site, unsigned skip,
			char *buf, size_t size);
/*
 * Compares the call sites of several calls that are shown side by side. Initialize with {0}. If the
 * sites differ, their first `shared` lines are the same, as in a function through which all of them
 * call, and need not be shown. Only df_say_compare() uses first and differ.
 */
struct df_say_lines {
	const char *first;
	unsigned shared, differ;
};
void df_say_compare(struct df_say_lines *l, struct df_check_set *set, uint32_t trace,
		    uint32_t site);
/* Returns all frames of the site, or "" if none are known. The text is valid as long as the set. */
const char *df_say_frames(struct df_check_set *set, uint32_t trace, uint32_t site);
/* Writes one frame of the site as df_stack_frame() does. Returns 0 if it is unknown. */
int df_say_frame(const struct df_check_set *set, uint32_t trace, uint32_t site, uint64_t nr,
		 char *buf, size_t size);
/* Looks up a string of a trace by its hash. Returns 0 if it is unknown. */
int df_say_string(const struct df_check_set *set, uint32_t trace, uint64_t hash, char *buf,
		  size_t size);
/* Returns the call site of the call that a record belongs to; 0 if unknown. */
uint32_t df_say_site_of(const struct df_check_set *set, uint32_t trace, uint64_t rec);
/*
 * Writes at most `max` innermost frames of the site: "a <- b <- c". For a call from a script,
 * writes the script's lines. Returns the number of frames, or 0 if the ring has lost the site.
 */
unsigned df_say_stack(struct df_check_set *set, uint32_t trace, uint32_t site, unsigned max,
		      char *buf, size_t size);
/* Whether the thread's line in the script is known, and the thread has recorded nothing since. */
int df_say_has_script(const struct df_trc *trc, const struct df_lthread *t);
/*
 * Returns where the script is of a thread that issues on the communicator, if possible of the main
 * thread; else that of the main thread; 0 if it is unknown. df_say_script() writes its innermost
 * line; it returns 0 if that is unknown.
 */
uint32_t df_say_script_site(const struct df_check_set *set, const struct df_trc_comm *e);
int df_say_script(struct df_check_set *set, const struct df_trc_comm *e, char *buf, size_t size);
const char *df_say_sig(const struct df_lop *op, char *buf, size_t size);
const char *df_say_thread(const struct df_check_set *set, uint32_t trace, uint32_t tid, char *buf,
			  size_t size);
double df_say_ago(const struct df_check_set *set, uint32_t trace, uint64_t time_ns);

/* Formats as printf() into memory from malloc(). Returns NULL if memory is short. */
char *df_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void df_note(struct df_check_result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
