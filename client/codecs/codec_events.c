/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec_events.h. Test: tests/e2e/codec_auto.sh
 */
#include "client/codecs/codec_events.h"

#include <math.h>

#include "client/log/figures.h"

void gp_codec_events_print(const struct gp_codec_events *e, FILE *to)
{
	for (int i = 0; i < e->changes; i++) {
		const struct gp_codec_change *c = &e->change[i];
		fprintf(to, "codec of %s from step %llu on: %s instead of %s: %s\n",
			gp_direction_info[c->direction].name, (unsigned long long)e->step + 1, c->to, c->from,
			c->reason);
	}
}

static json_t *positive_or_null(double x)
{
	return x > 0 ? gp_json_number(x) : json_null();
}

json_t *gp_codec_change_json(const struct gp_codec_events *e, int change)
{
	const struct gp_codec_change *c = &e->change[change];
	return json_pack("{s:I, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "step", (json_int_t)e->step,
			 "direction", gp_direction_info[c->direction].name, "from", c->from, "to", c->to, "reason",
			 c->reason, "bytes_per_s", positive_or_null(c->rate), "compute_s",
			 positive_or_null(c->compute_s), "wire_s", positive_or_null(c->wire_s), "wire_before_s",
			 positive_or_null(c->wire_before_s), "rel_err", gp_json_number(c->error), "cosine",
			 gp_json_number(c->cosine));
}

json_t *gp_codec_error_json(const struct gp_codec_events *e, int error)
{
	const struct gp_codec_error *x = &e->error[error];
	return json_pack("{s:I, s:s, s:o, s:o}", "step", (json_int_t)x->step, "direction",
			 gp_direction_info[x->direction].name, "rel_err", gp_json_number(x->error), "cosine",
			 gp_json_number(x->cosine));
}

static uint64_t steps_of(const struct gp_codec_use *use)
{
	uint64_t all = 0;
	for (int i = 0; i < use->ladder.rungs; i++)
		all += use->steps[i];
	return all;
}

static json_t *rungs_json(const struct gp_codec_use *use)
{
	json_t *list = json_array();
	char name[GP_CODEC_SPEC_MAX];
	for (int i = 0; i < use->ladder.rungs; i++)
		if (use->steps[i] > 0)
			json_array_append_new(list, json_pack("{s:s, s:I}", "codec",
							      gp_codec_ladder_name(&use->ladder, i, name), "steps",
							      (json_int_t)use->steps[i]));
	return list;
}

json_t *gp_codec_use_json(const struct gp_codec_use *use)
{
	json_t *all = use ? json_object() : json_null();
	for (int d = 0; use && d < GP_DIRECTIONS; d++)
		if (steps_of(&use[d]) > 0)
			json_object_set_new(all, gp_direction_info[d].name, rungs_json(&use[d]));
	return all;
}

static void print_rungs(const struct gp_codec_use *use, FILE *to)
{
	char name[GP_CODEC_SPEC_MAX];
	const uint64_t all = steps_of(use);
	const char *before = "";
	for (int i = 0; i < use->ladder.rungs; i++) {
		if (use->steps[i] == 0)
			continue;
		fprintf(to, "%s%s %.0f %%", before, gp_codec_ladder_name(&use->ladder, i, name),
			100.0 * (double)use->steps[i] / (double)all);
		before = ", ";
	}
}

void gp_codec_use_print(const struct gp_codec_use *use, FILE *to)
{
	for (int d = 0; use && d < GP_DIRECTIONS; d++) {
		if (steps_of(&use[d]) == 0)
			continue;
		fprintf(to, "codec of %s, by steps: ", gp_direction_info[d].name);
		print_rungs(&use[d], to);
		fputc('\n', to);
	}
}
