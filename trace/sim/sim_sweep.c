/* Reads the values of a sweep from the command line. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trace/sim/sim.h"
#include "trace/sim/sim_sweep.h"

#define WANT "allowed: KEY=FROM:TO:log|lin:COUNT or KEY=VALUE,VALUE,..."

static int add(struct df_sim_sweep *sw, const char *text)
{
	char *end;
	double x = strtod(text, &end);

	if (sw->nr && !strcmp(sw->text[sw->nr - 1], text))
		return 0; /* neighbouring values round to the same integer */
	if (sw->nr == DF_SIM_SWEEP_MAX || strlen(text) >= sizeof(sw->text[0]) || !*text)
		return -EINVAL;
	if (*end || !isfinite(x))
		sw->numeric = 0;
	strcpy(sw->text[sw->nr], text);
	sw->x[sw->nr++] = x;
	return 0;
}

static int parse_range(struct df_sim_sweep *sw, char *spec, enum df_sim_key_type type, char *err,
		       size_t err_size)
{
	char *from = strtok_r(spec, ":", &spec), *to = strtok_r(NULL, ":", &spec);
	char *how = strtok_r(NULL, ":", &spec), *count = strtok_r(NULL, ":", &spec), *e1, *e2, *e3;
	double a, b;
	long n;

	if (!from || !to || !how || !count || strtok_r(NULL, ":", &spec) ||
	    (strcmp(how, "log") && strcmp(how, "lin"))) {
		snprintf(err, err_size, "four parts are needed; " WANT);
		return -EINVAL;
	}
	a = strtod(from, &e1);
	b = strtod(to, &e2);
	n = strtol(count, &e3, 10);
	sw->log = !strcmp(how, "log");
	if (*e1 || *e2 || !isfinite(a) || !isfinite(b) || (sw->log && (a <= 0 || b <= 0))) {
		snprintf(err, err_size, "from %s to %s; allowed: numbers%s", from, to,
			 sw->log ? " above 0 (log)" : "");
		return -EINVAL;
	}
	if (*e3 || n < 2 || n > DF_SIM_SWEEP_MAX) {
		snprintf(err, err_size, "%s values; allowed: 2 to %d", count, DF_SIM_SWEEP_MAX);
		return -EINVAL;
	}
	for (long i = 0; i < n; i++) {
		double f = (double)i / (double)(n - 1);
		double x = sw->log ? exp(log(a) + f * (log(b) - log(a))) : a + f * (b - a);
		char text[32];

		if (i == n - 1)
			x = b;
		if (type == DF_SIM_KEY_INT)
			snprintf(text, sizeof(text), "%.0f", x);
		else
			snprintf(text, sizeof(text), "%.6g", x);
		if (add(sw, text))
			return -EINVAL;
	}
	return 0;
}

int df_sim_sweep_parse(struct df_sim_sweep *sw, const char *spec, char *err, size_t err_size)
{
	const char *eq = strchr(spec, '=');
	struct df_sim_sweep s = {.numeric = 1};
	enum df_sim_key_type type;
	char *copy = NULL, *v, *next;
	int rc = -EINVAL;

	if (!eq || eq == spec || (size_t)(eq - spec) >= sizeof(s.key) || !eq[1]) {
		snprintf(err, err_size, "no key with values; " WANT);
		return -EINVAL;
	}
	memcpy(s.key, spec, (size_t)(eq - spec));
	type = df_sim_key_type(s.key);
	if (type == DF_SIM_KEY_UNKNOWN) {
		snprintf(err, err_size, "no such key; allowed: the keys of a configuration");
		return -EINVAL;
	}
	snprintf(err, err_size, "out of memory");
	s.text = calloc(DF_SIM_SWEEP_MAX, sizeof(*s.text));
	s.x = calloc(DF_SIM_SWEEP_MAX, sizeof(*s.x));
	copy = strdup(eq + 1);
	if (!s.text || !s.x || !copy) {
		rc = -ENOMEM;
		goto out;
	}
	if (strchr(copy, ':')) {
		if (type == DF_SIM_KEY_OTHER) {
			snprintf(err, err_size, "takes no numbers; allowed: %s=WORD,WORD", s.key);
			goto out;
		}
		rc = parse_range(&s, copy, type, err, err_size);
		goto out;
	}
	rc = 0;
	for (v = copy; v && !rc; v = next) {
		next = strchr(v, ',');
		if (next)
			*next++ = '\0';
		rc = add(&s, v);
	}
	if (rc)
		snprintf(err, err_size, "an empty, too long or surplus value; " WANT);
out:
	free(copy);
	if (rc) {
		df_sim_sweep_fini(&s);
		return rc;
	}
	/* A list of values that spans a factor of 50 is drawn on a logarithmic scale. */
	if (s.numeric && !s.log && s.nr > 2 && s.x[0] > 0 && s.x[s.nr - 1] / s.x[0] >= 50)
		s.log = 1;
	if (!s.numeric)
		for (int i = 0; i < s.nr; i++)
			s.x[i] = i;
	*sw = s;
	return 0;
}

void df_sim_sweep_fini(struct df_sim_sweep *sw)
{
	free(sw->text);
	free(sw->x);
	memset(sw, 0, sizeof(*sw));
}
