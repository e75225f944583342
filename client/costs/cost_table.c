/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs and rates as text and as JSON. See cost_table.h. Test: tests/unit/test_part_costs.c
 */
#include "client/costs/cost_table.h"

enum { SPANS = 3, CELL = 12, LABEL = 25, GROUP = SPANS * CELL };

static const char *const span_keys[SPANS] = {"sample", "chunk", "batch"};

/* Short texts by value, so that several fit into one printf. */
struct cell {
	char s[40];
};

static int64_t span_samples(const struct gp_model_view *v, int span)
{
	return span == 0 ? 1 : span == 1 ? v->chunk_samples : v->batch;
}

/* A batch in one chunk needs no column for it. */
static bool is_shown(const struct gp_model_view *v, int span)
{
	return span != 1 || v->chunks > 1;
}

/* 745013248 -> "7.45e8" */
static struct cell number_text(uint64_t n)
{
	struct cell c;
	int exponent = 0;
	double v = (double)n;
	for (; v >= 9.995; exponent++)
		v /= 10;
	snprintf(c.s, sizeof c.s, n ? "%.2fe%d" : "0", v, exponent);
	return c;
}

static struct cell span_text(const struct gp_model_view *v, int span)
{
	struct cell c;
	if (span == 0)
		snprintf(c.s, sizeof c.s, "sample");
	else
		snprintf(c.s, sizeof c.s, "%s of %lld", span_keys[span], (long long)span_samples(v, span));
	return c;
}

/* --- the table of costs ----------------------------------------------------------------------------------------- */

static void print_head(const struct gp_model_view *v, FILE *to)
{
	static const char *const groups[] = {"MACs", "MACs, origin's count", "bytes that layers make"};
	const int width = v->chunks > 1 ? GROUP : GROUP - CELL;
	fprintf(to, "\n%-*s", LABEL, "");
	for (int g = 0; g <= GP_COUNTS; g++)
		fprintf(to, "%*s", width, groups[g]);
	fprintf(to, "\n%-*s", LABEL, "part");
	for (int g = 0; g <= GP_COUNTS; g++)
		for (int s = 0; s < SPANS; s++)
			if (is_shown(v, s))
				fprintf(to, " %*s", CELL - 1, span_text(v, s).s);
	fputc('\n', to);
}

static uint64_t figure(const struct gp_cost *c, int group)
{
	return group < GP_COUNTS ? c->macs[group] : c->bytes;
}

static void print_pass(const struct gp_model_view *v, int part, enum gp_pass pass, FILE *to)
{
	fprintf(to, "%-14s %-*s", pass == GP_PASS_FORWARD ? gp_view_part_names[part] : "", LABEL - 15,
		gp_pass_names[pass]);
	for (int g = 0; g <= GP_COUNTS; g++)
		for (int s = 0; s < SPANS; s++) {
			const struct gp_cost c = gp_cost_of(&v->part[part].costs.pass[pass], span_samples(v, s));
			if (is_shown(v, s))
				fprintf(to, " %*s", CELL - 1, number_text(figure(&c, g)).s);
		}
	fputc('\n', to);
}

/* --- rates ------------------------------------------------------------------------------------------------------ */

/* Bytes of one sample. */
struct crossing_bytes {
	uint64_t with, without;
};

enum way { WAY_UP, WAY_DOWN, WAY_BOTH, WAYS };
static const char *const way_keys[WAYS] = {"up", "down", "both"};

static struct crossing_bytes cross(const struct gp_model_view *v, enum gp_pass pass, enum way way)
{
	struct crossing_bytes sum = {0};
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const struct gp_direction_info *info = &gp_direction_info[d];
		if (info->gradient != (pass == GP_PASS_BACKWARD) || (way != WAY_BOTH && info->up != (way == WAY_UP)))
			continue;
		sum.with += gp_model_view_bytes(v, (enum gp_direction)d, 1);
		sum.without += v->plain.bytes[d];
	}
	return sum;
}

static struct cell rate_text(const struct crossing_bytes *b)
{
	struct cell c;
	snprintf(c.s, sizeof c.s, b->without ? "%.4f" : "-", (double)b->with / (double)b->without);
	return c;
}

static void print_rates(const struct gp_model_view *v, FILE *to)
{
	fprintf(to, "\n%-*s%*s%*s%*s%*s%*s\n", LABEL, "rate", CELL, "up", CELL, "down", CELL, "both", 16,
		"bytes/sample", 20, "without insertion");
	for (int p = 0; p < GP_PASSES; p++) {
		fprintf(to, "%-*s", LABEL, gp_pass_names[p]);
		for (int w = 0; w < WAYS; w++) {
			const struct crossing_bytes b = cross(v, (enum gp_pass)p, (enum way)w);
			fprintf(to, "%*s", CELL, rate_text(&b).s);
		}
		const struct crossing_bytes both = cross(v, (enum gp_pass)p, WAY_BOTH);
		fprintf(to, "%16llu%20llu\n", (unsigned long long)both.with, (unsigned long long)both.without);
	}
}

void gp_cost_table_print(const struct gp_model_view *v, FILE *to)
{
	print_head(v, to);
	for (int part = 0; part < GP_VIEW_PARTS; part++)
		for (int pass = 0; pass < GP_PASSES; pass++)
			print_pass(v, part, (enum gp_pass)pass, to);
	print_rates(v, to);
}

/* --- JSON ------------------------------------------------------------------------------------------------------- */

json_t *gp_cost_json(const struct gp_model_view *v, const struct gp_cost *sample)
{
	json_t *spans = json_object();
	for (int s = 0; s < SPANS; s++) {
		const struct gp_cost c = gp_cost_of(sample, span_samples(v, s));
		json_object_set_new(spans, span_keys[s],
				    json_pack("{s:I, s:I, s:I}", "macs", (json_int_t)c.macs[GP_COUNT_TRUE],
					      "origin_macs", (json_int_t)c.macs[GP_COUNT_ORIGIN], "bytes",
					      (json_int_t)c.bytes));
	}
	return spans;
}

json_t *gp_rates_json(const struct gp_model_view *v)
{
	json_t *rates = json_object();
	for (int p = 0; p < GP_PASSES; p++) {
		json_t *ways = json_object();
		for (int w = 0; w < WAYS; w++) {
			const struct crossing_bytes b = cross(v, (enum gp_pass)p, (enum way)w);
			json_object_set_new(ways, way_keys[w],
					    b.without ? json_real((double)b.with / (double)b.without) : json_null());
		}
		json_object_set_new(rates, gp_pass_names[p], ways);
	}
	return rates;
}
