/* SPDX-License-Identifier: Apache-2.0
 *
 * See bench_figures.h. Test: tests/unit/test_bench_table.c
 */
#include "client/bench/bench_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/wire/direction.h"

struct steps {
	int count, room;
	double (*of)[GP_BENCH_FIGURES]; /* by step */
	double payload, uncompressed;   /* sums */
	double bound[GP_BOUND_COUNT];
};

static double number(const json_t *o, const char *name)
{
	const json_t *value = json_object_get(o, name);
	return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A sum of what was measured; NAN: nothing was. */
static void add(double *sum, double x)
{
	if (isfinite(x))
		*sum = isfinite(*sum) ? *sum + x : x;
}

static void add_stages(const json_t *link, double *figure)
{
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const json_t *kind = json_object_get(link, gp_direction_info[d].name);
		add(&figure[GP_BENCH_ENCODE], number(kind, "encode_s"));
		add(&figure[GP_BENCH_WIRE], number(kind, "wire_s"));
		add(&figure[GP_BENCH_WAIT], number(kind, "wait_s"));
		add(&figure[GP_BENCH_DECODE], number(kind, "decode_s"));
	}
}

static void add_bytes(struct steps *s, const json_t *link)
{
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const json_t *kind = json_object_get(link, gp_direction_info[d].name);
		const double payload = number(kind, "payload_bytes"), whole = number(kind, "uncompressed_bytes");
		if (isfinite(payload) && isfinite(whole)) {
			s->payload += payload;
			s->uncompressed += whole;
		}
	}
}

static void read_step(struct steps *s, const json_t *line, double figure[GP_BENCH_FIGURES])
{
	const json_t *link = json_object_get(line, "link"), *bound = json_object_get(line, "bound_by");
	for (int f = 0; f < GP_BENCH_FIGURES; f++)
		figure[f] = NAN;
	figure[GP_BENCH_TIME] = number(line, "seconds");
	figure[GP_BENCH_COMPUTE] = number(line, "compute_s");
	figure[GP_BENCH_UP_BYTES_S] = number(line, "up_bytes_per_s");
	figure[GP_BENCH_DOWN_BYTES_S] = number(line, "down_bytes_per_s");
	figure[GP_BENCH_WIRE_UP_BYTES] = number(line, "wire_up_bytes");
	figure[GP_BENCH_WIRE_DOWN_BYTES] = number(line, "wire_down_bytes");
	figure[GP_BENCH_BODY] = number(bound, gp_bound_name(GP_BOUND_BODY));
	add_stages(link, figure);
	add_bytes(s, link);
	for (int b = 0; b < GP_BOUND_COUNT; b++) {
		const double x = number(bound, gp_bound_name((enum gp_bound)b));
		s->bound[b] += isfinite(x) ? x : 0;
	}
}

static enum gp_status take_step(struct steps *s, const json_t *line, int skip, struct gp_err *err)
{
	if (number(line, "step") <= skip)
		return GP_OK;
	if (s->count == s->room) {
		const int room = s->room ? 2 * s->room : 64;
		double(*grown)[GP_BENCH_FIGURES] = gp_realloc(s->of, (size_t)room, sizeof *grown);
		if (!grown)
			GP_FAIL(err, GP_NOMEM, "out of memory for the steps of a run");
		s->of = grown;
		s->room = room;
	}
	read_step(s, line, s->of[s->count]);
	if (s->of[s->count][GP_BENCH_TIME] > 0)
		s->count++;
	return GP_OK;
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* The steps in which it was not measured do not count. */
static double median(const struct steps *s, int f, double *room)
{
	int n = 0;
	for (int i = 0; i < s->count; i++)
		if (isfinite(s->of[i][f]))
			room[n++] = s->of[i][f];
	qsort(room, (size_t)n, sizeof *room, by_size);
	return n == 0 ? NAN : n % 2 ? room[n / 2] : (room[n / 2 - 1] + room[n / 2]) / 2;
}

static void set_bound(const struct steps *s, struct gp_bench_run *run)
{
	int most = 0;
	for (int b = 1; b < GP_BOUND_COUNT; b++)
		if (s->bound[b] > s->bound[most])
			most = b;
	snprintf(run->bound_by, sizeof run->bound_by, "%s",
		 s->bound[most] > 0 ? gp_bound_name((enum gp_bound)most) : "");
}

static enum gp_status sum_up(const struct steps *s, const double eval[2], struct gp_bench_run *run, struct gp_err *err)
{
	double *room;
	if (s->count == 0)
		GP_FAIL(err, GP_INVALID, "the training has told of no step that counts");
	GP_TRY(gp_alloc_array((void **)&room, (size_t)s->count, sizeof *room, err));
	for (int f = 0; f < GP_BENCH_FIGURES; f++)
		run->figure[f] = median(s, f, room);
	gp_free(room);
	run->figure[GP_BENCH_LOWEST] = run->figure[GP_BENCH_TIME];
	for (int i = 0; i < s->count; i++)
		run->figure[GP_BENCH_LOWEST] = fmin(run->figure[GP_BENCH_LOWEST], s->of[i][GP_BENCH_TIME]);
	run->figure[GP_BENCH_RATE] = s->uncompressed > 0 ? s->payload / s->uncompressed : NAN;
	run->figure[GP_BENCH_ACCURACY] = eval[0];
	run->figure[GP_BENCH_LOSS] = eval[1];
	run->steps = s->count;
	set_bound(s, run);
	return GP_OK;
}

static enum gp_status take_line(struct steps *s, const json_t *line, int skip, double eval[2], struct gp_err *err)
{
	const char *event = json_string_value(json_object_get(line, "event"));
	if (!event)
		GP_FAIL(err, GP_INVALID, "the log of the training is damaged");
	if (strcmp(event, "eval") == 0) {
		eval[0] = number(line, "val_acc");
		eval[1] = number(line, "val_loss");
	}
	return strcmp(event, "step") == 0 ? take_step(s, line, skip, err) : GP_OK;
}

static enum gp_status take_lines(FILE *f, struct steps *s, int skip, double eval[2], struct gp_err *err)
{
	char *text = NULL;
	size_t size = 0;
	ssize_t length;
	enum gp_status status = GP_OK;
	while (status == GP_OK && (length = getline(&text, &size, f)) > 0) {
		json_t *line = json_loadb(text, (size_t)length, 0, NULL);
		status = take_line(s, line, skip, eval, err);
		json_decref(line);
	}
	free(text);
	return status;
}

enum gp_status gp_bench_figures_read(const char *log, int skip, struct gp_bench_run *run, struct gp_err *err)
{
	struct steps s = {0};
	double eval[2] = {NAN, NAN};
	FILE *f = fopen(log, "re");
	if (!f)
		GP_FAIL(err, GP_INVALID, "the training has left no log of its steps");
	enum gp_status status = take_lines(f, &s, skip, eval, err);
	fclose(f);
	if (status == GP_OK)
		status = sum_up(&s, eval, run, err);
	gp_free(s.of);
	return status;
}
