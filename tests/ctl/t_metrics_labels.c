/*
 * Description: names of communicators in metrics are escaped, clean and bounded, whatever they
 * contain. Operations and bytes of communicators with the same name are summed. Numbers have a
 * decimal point in any locale.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/lib/test.h"
#include "runtime/watch/metrics.h"
#include "trace/record/names.h"
#include "trace/record/writer.h"

static char *text;

static void issue(const char *name, enum df_kind kind, uint64_t count)
{
	uint32_t comm = df_trace_comm(1, 2, 0, 0, 0, name);

	ck_assert_uint_ne(comm, 0);
	df_trace_op(&(struct df_trace_op){.op = df_trace_serial(),
					  .count = count,
					  .comm = comm,
					  .peer = -1,
					  .kind = (uint8_t)kind,
					  .type = 8});
}

static void open_trace(void)
{
	const struct df_trace_config config = {.mb = 1, .rank = 3, .world = 4};

	ck_assert_int_eq(df_trace_open(&config), 0);
}

static void has(const char *line)
{
	ck_assert_msg(strstr(text, line) != NULL, "no %s in:\n%s", line, text);
}

START_TEST(t_names)
{
	open_trace();
	issue("", DF_KIND_ALLREDUCE, 1);
	issue("7", DF_KIND_SEND, 2);
	issue("7", DF_KIND_SEND, 3);
	issue("a\"b\\c", DF_KIND_ALLREDUCE, 1);
	issue("x\"} 5\ny", DF_KIND_ALLREDUCE, 1);
	issue("\xff\x1b[31m", DF_KIND_ALLREDUCE, 1);
	/* cut inside a character when it is stored */
	issue("123456789012345678901234567890\xc3\xa4", DF_KIND_ALLREDUCE, 1);
	text = df_metrics_text();
	ck_assert_ptr_nonnull(text);
	has("dfshim_operations_total{rank=\"3\",communicator=\"unnamed\",kind=\"AllReduce\"} 1\n");
	has("dfshim_operations_total{rank=\"3\",communicator=\"pg7\",kind=\"Send\"} 2\n");
	has("dfshim_bytes_total{rank=\"3\",communicator=\"pg7\",kind=\"Send\"} 40\n");
	has("communicator=\"a\\\"b\\\\c\"");
	has("communicator=\"x\\\"} 5?y\"");
	has("communicator=\"?");
	has("communicator=\"123456789012345678901234567890?\"");
	has("dfshim_oldest_operation_seconds{rank=\"3\",communicator=\"pg7\"} ");
	ck_assert_ptr_null(strstr(text, "\x1b"));
	ck_assert_ptr_null(strstr(text, "\xff"));
	ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
	free(text);
}
END_TEST

START_TEST(t_comma)
{
	char own[8];

	if (df_test_locale("de_DE"))
		return;
	snprintf(own, sizeof(own), "%.1f", 2.5);
	ck_assert_str_eq(own, "2,5");
	open_trace();
	issue("7", DF_KIND_SEND, 2);
	text = df_metrics_text();
	has("dfshim_verdict_timestamp_seconds{rank=\"3\"} 0.000\n");
	free(text);
	snprintf(own, sizeof(own), "%.1f", 2.5);
	ck_assert_str_eq(own, "2,5");
}
END_TEST

START_TEST(t_bounded)
{
	char name[32];
	unsigned lines = 0;

	open_trace();
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "group-%d", i);
		issue(name, DF_KIND_ALLREDUCE, 1);
	}
	text = df_metrics_text();
	ck_assert_ptr_nonnull(text);
	for (const char *s = text; (s = strstr(s, "dfshim_operations_total{")); s++)
		lines++;
	ck_assert_uint_eq(lines, 65);
	has("communicator=\"group-63\"");
	ck_assert_ptr_null(strstr(text, "group-64"));
	has("dfshim_operations_total{rank=\"3\",communicator=\"other\",kind=\"AllReduce\"} 936\n");
	free(text);
}
END_TEST

int main(void)
{
	return DF_TESTS("metrics_labels", {t_names}, {t_comma}, {t_bounded});
}
