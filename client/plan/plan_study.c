/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_study.h. Test: tests/unit/test_plan_measure.c, tests/e2e/plan.sh
 */
#include "client/plan/plan_study.h"

#include <math.h>
#include <string.h>

#include "client/train/capture.h"
#include "common/base/mem.h"

#define CAPTURED_ONE  64 /* samples of the chunk that codecs are tried on, at most */
#define CAPTURED_EACH 8  /* the same where every cut has its turn */

enum { FIRST, SECOND, ENDS };

void gp_plan_study_deinit(struct gp_plan_study *s)
{
	for (int i = 0; i < GP_PLAN_CHUNKS_MAX; i++)
		gp_plan_blocks_deinit(&s->blocks[i]);
	gp_free(s->coding);
	gp_free(s->cut);
	*s = (struct gp_plan_study){0};
}

static struct gp_plan_coding *coding_at(const struct gp_plan_study *s, int boundary, int codec, int end)
{
	return &s->coding[((size_t)(boundary * s->codecs + codec) * ENDS + (size_t)end) * GP_CODED];
}

enum gp_status gp_plan_study_add_codec(struct gp_plan_study *s, const char *text, struct gp_err *err)
{
	struct gp_plan_codec_set *set = &s->codec[s->codecs];
	if (s->codecs == GP_PLAN_CODECS_MAX)
		GP_FAIL(err, GP_USAGE, "--codecs: at most %d can be tried at once", GP_PLAN_CODECS_MAX);
	snprintf(set->text, sizeof set->text, "%s", text);
	set->same = true;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		GP_TRY(gp_codec_spec_parse(text, &set->spec[d], err));
	s->codecs++;
	return GP_OK;
}

/* --- codecs ------------------------------------------------------------------------------------------------------- */

/* The directions of activations and gradients at the first cut, and at the second. */
static const enum gp_direction passing[ENDS][GP_CODED] = {{GP_ACT_UP, GP_GRAD_DOWN}, {GP_ACT_DOWN, GP_GRAD_UP}};

static enum gp_status try_codecs(struct gp_plan_study *s, const struct gp_capture *tensors, int end, int boundary,
				 int used_as, struct gp_err *err)
{
	for (int c = 0; c < s->codecs; c++) {
		const struct gp_codec_spec *const spec[GP_CODED] = {&s->codec[c].spec[passing[used_as][GP_CODED_ACT]],
								    &s->codec[c].spec[passing[used_as][GP_CODED_GRAD]]};
		struct gp_plan_coding *out = coding_at(s, boundary, c, used_as);
		if (used_as != end && s->codec[c].same) /* has been measured as the other one */
			memcpy(out, coding_at(s, boundary, c, end), GP_CODED * sizeof *out);
		else
			GP_TRY(gp_plan_codecs_measure(tensors, end == FIRST, spec, s->codec_seconds, out, err));
	}
	return GP_OK;
}

static int samples_for_codecs(const struct gp_plan_study *s)
{
	int least = s->batch;
	for (int i = 0; i < s->chunkings; i++)
		least = s->batch / s->chunks[i] < least ? s->batch / s->chunks[i] : least;
	const int most = s->cuts == 1 ? CAPTURED_ONE : CAPTURED_EACH;
	return least < most ? least : most;
}

static enum gp_status capture(const struct gp_plan_study *s, const struct gp_batch *batch, const struct gp_cut *cut,
			      struct gp_capture *out, struct gp_err *err)
{
	const struct gp_capture_spec spec = {.graph = s->world.graph,
					     .cut = *cut,
					     .weights = s->weights,
					     .device = s->world.device->name,
					     .threads = s->world.threads,
					     .seed = s->world.session.seed};
	struct gp_batch some = *batch;
	some.valid = samples_for_codecs(s);
	return gp_capture_run(&spec, &some, out, err);
}

static enum gp_status measure_one_cut(struct gp_plan_study *s, const struct gp_batch *batch, struct gp_err *err)
{
	struct gp_capture tensors;
	GP_TRY(capture(s, batch, &s->cut[0], &tensors, err));
	enum gp_status status = try_codecs(s, &tensors, FIRST, s->cut[0].head, FIRST, err);
	if (status == GP_OK)
		status = try_codecs(s, &tensors, SECOND, s->cut[0].tail, SECOND, err);
	gp_capture_deinit(&tensors);
	return status;
}

/* What passes a boundary as the first cut stands for what passes it as the second one, but for the last boundary. */
static enum gp_status measure_boundary(struct gp_plan_study *s, const struct gp_batch *batch, int boundary,
				       struct gp_err *err)
{
	const int last = s->world.graph->blocks - 1;
	const struct gp_cut cut = {boundary, last};
	struct gp_capture tensors;
	GP_TRY(capture(s, batch, &cut, &tensors, err));
	enum gp_status status = try_codecs(s, &tensors, FIRST, boundary, FIRST, err);
	if (status == GP_OK)
		status = try_codecs(s, &tensors, FIRST, boundary, SECOND, err);
	if (status == GP_OK && boundary == last - 1)
		status = try_codecs(s, &tensors, SECOND, last, SECOND, err);
	gp_capture_deinit(&tensors);
	return status;
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static uint64_t free_bytes(void)
{
	const uint64_t free = uv_get_free_memory(), group = uv_get_constrained_memory();
	return (group > 0 && group < free ? group : free) / 2;
}

static enum gp_status measure_blocks(struct gp_plan_study *s, const struct gp_batch *batch, int chunking,
				     struct gp_err *err)
{
	const struct gp_plan_blocks_spec spec = {.graph = s->world.graph,
						 .weights = s->weights,
						 .device = s->world.device,
						 .seed = s->world.session.seed,
						 .optim = s->world.session.optim,
						 .precision = s->world.session.precision,
						 .recompute = s->world.session.recompute,
						 .maps = gp_session_maps(&s->world.session),
						 .coding = &s->world.session,
						 .loss = s->loss,
						 .seconds = s->block_seconds,
						 .memory_bytes = s->memory_bytes > 0 ? s->memory_bytes : free_bytes()};
	return gp_plan_blocks_measure(&spec, batch, s->batch / s->chunks[chunking], &s->blocks[chunking], err);
}

static enum gp_status make_coding(struct gp_plan_study *s, struct gp_err *err)
{
	const size_t count = (size_t)s->world.graph->blocks * (size_t)s->codecs * ENDS * GP_CODED;
	return gp_alloc_array((void **)&s->coding, count, sizeof *s->coding, err);
}

enum gp_status gp_plan_study_measure(struct gp_plan_study *s, const struct gp_batch *batch,
				     void (*tell)(void *arg, const char *what, int done, int of), void *arg,
				     struct gp_err *err)
{
	const int boundaries = s->cuts == 1 ? 1 : s->world.graph->blocks - 2;
	GP_TRY(make_coding(s, err));
	for (int i = 0; i < s->chunkings; i++) {
		if (tell)
			tell(arg, "computing", i, s->chunkings);
		GP_TRY(measure_blocks(s, batch, i, err));
	}
	for (int b = 1; b <= boundaries; b++) {
		if (tell)
			tell(arg, "codecs", b - 1, boundaries);
		GP_TRY(s->cuts == 1 ? measure_one_cut(s, batch, err) : measure_boundary(s, batch, b, err));
	}
	return GP_OK;
}

/* --- predicting
 * ----------------------------------------------------------------------------------------------------- */

static struct gp_plan_choice choice_of(const struct gp_plan_study *s, const struct gp_plan_pick *pick)
{
	struct gp_plan_choice c = {.cut = s->cut[pick->cut],
				   .chunks = s->chunks[pick->chunking],
				   .chunk_samples = s->batch / s->chunks[pick->chunking],
				   .window = s->window,
				   .blocks = &s->blocks[pick->chunking]};
	for (int d = 0; d < GP_DIRECTIONS; d++)
		c.codec[d] = s->codec[pick->codec].spec[d];
	for (int end = 0; end < ENDS; end++)
		for (int k = 0; k < GP_CODED; k++)
			c.coding[passing[end][k]] =
				coding_at(s, end == FIRST ? c.cut.head : c.cut.tail, pick->codec, end) + k;
	return c;
}

enum gp_status gp_plan_study_predict(const struct gp_plan_study *s, const struct gp_plan_pick *pick,
				     const struct gp_crossing *cross, struct gp_prediction *out, struct gp_err *err)
{
	struct gp_plan_choice c = choice_of(s, pick);
	c.cross = cross;
	return gp_plan_predict(&s->world, &c, out, err);
}

enum gp_status gp_plan_study_memory(const struct gp_plan_study *s, const struct gp_plan_pick *pick,
				    struct gp_prediction *p, struct gp_err *err)
{
	const struct gp_plan_choice c = choice_of(s, pick);
	return gp_plan_predict_memory(&s->world, &c, p, err);
}

/* --- a server
 * ------------------------------------------------------------------------------------------------------- */

/* 1 where either took no time that could be measured. */
static double speed(double here_s, double there_s)
{
	return here_s > 0 && there_s > 0 ? here_s / there_s : 1;
}

/* The other end's work by this machine's measure. */
static double coded_here(const struct gp_prediction *p, double server_speed)
{
	double s = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		s += gp_direction_info[d].up ? p->schedule.flow[d].decode_s : p->schedule.flow[d].encode_s;
	return s * server_speed;
}

void gp_plan_study_serve(struct gp_plan_study *s, const struct gp_plan_server *server, const struct gp_plan_pick *pick)
{
	struct gp_prediction p;
	struct gp_err ignored;
	double coded_s = 0;
	s->served = true;
	s->server = *server;
	s->world.server = (struct gp_plan_speed){1, 1, 1, 1};
	if (gp_plan_study_predict(s, pick, NULL, &p, &ignored) != GP_OK)
		return; /* the caller will hear of it */
	for (int d = 0; d < GP_DIRECTIONS; d++)
		coded_s += server->coded_s[d];
	s->world.server = (struct gp_plan_speed){.forward = speed(p.schedule.body_forward_s, server->forward_s),
						 .backward = speed(p.schedule.body_backward_s, server->backward_s),
						 .update = speed(p.schedule.body_update_s, server->update_s),
						 .codec = speed(coded_here(&p, 1), coded_s)};
}
