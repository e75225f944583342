/* SPDX-License-Identifier: Apache-2.0
 *
 * See survey.h. Test: tests/unit/test_codec_ladder.c
 */
#include "common/wire/survey.h"

#include <math.h>

static struct gp_codec_options both_ways(uint64_t seed)
{
	return (struct gp_codec_options){.seed = seed, .role = GP_CODEC_BOTH};
}

static enum gp_status estimate_rung(const struct gp_survey_spec *s, int i, uint64_t *bytes, uint64_t *ns,
				    struct gp_err *err)
{
	const struct gp_codec_options options = both_ways(s->seed);
	struct gp_codec_spec spec;
	uint64_t bound, codec;
	gp_codec_ladder_rung(s->ladder, i, &spec);
	GP_TRY(gp_codec_bound_for(&spec, &s->shape, &bound, err));
	GP_TRY(gp_codec_bytes_for(&spec, &s->shape, &options, &codec, err));
	GP_TRY(gp_codec_work_for(&spec, &s->shape, &options, ns, err));
	if (!gp_add_ok(bound, codec, bytes))
		GP_FAIL(err, GP_INVALID, "a survey's memory overflows");
	return GP_OK;
}

enum gp_status gp_survey_estimate(const struct gp_survey_spec *s, uint64_t *bytes, uint64_t *ns, struct gp_err *err)
{
	const uint64_t tensor = gp_shape_elements(&s->shape) * sizeof(float);
	uint64_t most = 0, work = 0;
	for (int i = 0; i < s->ladder->rungs; i++) {
		uint64_t rung, rung_ns;
		GP_TRY(estimate_rung(s, i, &rung, &rung_ns, err));
		most = rung > most ? rung : most;
		work = gp_add_ok(work, rung_ns, &work) ? work : UINT64_MAX;
	}
	if (!gp_add_ok(most, s->device ? 2 * tensor : tensor, bytes))
		GP_FAIL(err, GP_INVALID, "a survey's memory overflows");
	*ns = work;
	return GP_OK;
}

/* --- one survey --------------------------------------------------------------------------------------------------- */

static void compare(const float *x, const float *y, uint64_t n, struct gp_surveyed *out)
{
	for (uint64_t i = 0; i < n; i++) {
		const double a = (double)x[i], b = (double)y[i];
		if (!isfinite(a))
			continue;
		out->dd += (a - b) * (a - b);
		out->xx += a * a;
		out->yy += b * b;
		out->xy += a * b;
	}
}

struct rooms {
	float *x, *y; /* x: a copy of what lies on a device; else NULL */
	uint8_t *payload;
};

static enum gp_status try_codec(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x, uint64_t n,
				struct rooms *room, struct gp_surveyed *out, struct gp_err *err)
{
	const size_t bound = gp_codec_bound(c);
	size_t len;
	room->payload = gp_alloc_aligned(bound);
	if (!room->payload)
		GP_FAIL(err, GP_NOMEM, "out of memory for a survey");
	GP_TRY(gp_codec_encode_pass(c, pass, x, room->payload, bound, &len, err));
	GP_TRY(gp_codec_decode_pass(c, pass, (struct gp_span){room->payload, len}, room->y, err));
	*out = (struct gp_surveyed){.tensor_bytes = n * sizeof(float), .payload_bytes = len};
	compare(x, room->y, n, out);
	return GP_OK;
}

static enum gp_status try_rung(const struct gp_survey_spec *s, int i, const struct gp_codec_pass *pass, const float *x,
			       struct rooms *room, struct gp_surveyed *out, struct gp_err *err)
{
	const struct gp_codec_options options = both_ways(s->seed);
	struct gp_codec_spec spec;
	struct gp_codec *c;
	gp_codec_ladder_rung(s->ladder, i, &spec);
	GP_TRY(gp_codec_open(&spec, &s->shape, &options, &c, err));
	const enum gp_status status = try_codec(c, pass, x, gp_shape_elements(&s->shape), room, out, err);
	gp_free_aligned(room->payload);
	room->payload = NULL;
	gp_codec_free(c);
	return status;
}

static enum gp_status copy_from_device(const struct gp_codec_device *m, const float *x, float *to, size_t bytes,
				       struct gp_err *err)
{
	struct gp_codec_site *site;
	GP_TRY(m->ops->site_open(m, 64, &site, err));
	m->ops->down(site, to, x, bytes);
	const enum gp_status status = m->ops->finish(site, err);
	m->ops->site_close(site);
	return status;
}

static enum gp_status take_rooms(const struct gp_survey_spec *s, const float **x, struct rooms *room,
				 struct gp_err *err)
{
	const size_t bytes = gp_shape_elements(&s->shape) * sizeof(float);
	room->y = gp_alloc_aligned(bytes);
	room->x = s->device ? gp_alloc_aligned(bytes) : NULL;
	if (!room->y || (s->device && !room->x))
		GP_FAIL(err, GP_NOMEM, "out of memory for a survey");
	if (!s->device)
		return GP_OK;
	GP_TRY(copy_from_device(s->device, *x, room->x, bytes, err));
	*x = room->x;
	return GP_OK;
}

enum gp_status gp_survey_run(const struct gp_survey_spec *s, const struct gp_codec_pass *pass, const float *x,
			     struct gp_survey *out, struct gp_err *err)
{
	struct gp_survey found = {.done = true, .step = pass->step};
	struct rooms room = {0};
	enum gp_status status = take_rooms(s, &x, &room, err);
	for (int i = 0; status == GP_OK && i < s->ladder->rungs; i++)
		status = try_rung(s, i, pass, x, &room, &found.rung[i], err);
	gp_free_aligned(room.x);
	gp_free_aligned(room.y);
	if (status == GP_OK)
		*out = found;
	return status;
}

/* --- what it says ------------------------------------------------------------------------------------------------- */

void gp_surveyed_add(struct gp_surveyed *sum, const struct gp_surveyed *s)
{
	sum->tensor_bytes += s->tensor_bytes;
	sum->payload_bytes += s->payload_bytes;
	sum->dd += s->dd;
	sum->xx += s->xx;
	sum->yy += s->yy;
	sum->xy += s->xy;
}

double gp_surveyed_error(const struct gp_surveyed *s)
{
	return s->dd > 0 ? sqrt(s->dd / fmax(s->xx, 1e-300)) : 0;
}

double gp_surveyed_cosine(const struct gp_surveyed *s)
{
	if (!(s->dd > 0))
		return 1;
	return s->xx > 0 && s->yy > 0 ? fmin(s->xy / sqrt(s->xx) / sqrt(s->yy), 1) : 0;
}
