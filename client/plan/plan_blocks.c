/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_blocks.h. Test: tests/unit/test_plan_measure.c
 */
#include "client/plan/plan_blocks.h"

#include "client/engine/batch_labels.h"
#include "client/engine/batch_map.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/graph/plan_profile.h"
#include "common/graph/tie.h"

enum { REPEATS_LEAST = 3, REPEATS_MOST = 32, FORWARD = 0, BACKWARD = 1, PASSES = 2 };

/* A measurement under way. */
struct trial {
	const struct gp_plan_blocks_spec *spec;
	const struct gp_batch *batch;
	struct gp_batch_map map;
	struct gp_plan *plan;
	struct gp_tie tie;
	const struct gp_plan_profile *profile;
	int samples, repeats;
	double *taken; /* [repeat][block][pass] */
	double loss_s[REPEATS_MOST], update_s[REPEATS_MOST];
	uint64_t *before; /* [block][pass]: nanoseconds of the profile so far */
	uint64_t pack_ns;
};

static double seconds_since(uint64_t ns)
{
	return (double)(gp_now_ns() - ns) * 1e-9;
}

double gp_plan_median(double *x, int count)
{
	for (int i = 1; i < count; i++) {
		const double moved = x[i];
		int k = i;
		for (; k > 0 && x[k - 1] > moved; k--)
			x[k] = x[k - 1];
		x[k] = moved;
	}
	return count > 0 ? (x[(count - 1) / 2] + x[count / 2]) / 2 : 0;
}

void gp_plan_blocks_deinit(struct gp_plan_blocks *b)
{
	gp_free(b->block);
	*b = (struct gp_plan_blocks){0};
}

struct gp_plan_block gp_plan_blocks_sum(const struct gp_plan_blocks *b, int first, int end)
{
	struct gp_plan_block sum = {0};
	for (int i = first; i < end; i++) {
		sum.forward_s += b->block[i].forward_s;
		sum.backward_s += b->block[i].backward_s;
		sum.update_s += b->block[i].update_s;
	}
	return sum;
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static struct gp_plan_spec plan_spec(const struct trial *t)
{
	const struct gp_plan_blocks_spec *s = t->spec;
	struct gp_plan_spec ps = {.graph = s->graph,
				  .batch = t->samples,
				  .slots = 1,
				  .train = true,
				  .seed = s->seed,
				  .optim = s->optim,
				  .undo = true,
				  .loss = s->loss,
				  .recompute = s->recompute,
				  .maps = s->maps,
				  .precision = s->precision};
	if (s->coding)
		gp_session_coded(s->coding, &ps);
	return ps;
}

/* As many of the samples as there is memory for. */
static enum gp_status choose_samples(struct trial *t, struct gp_err *err)
{
	struct gp_plan_memory need;
	for (;; t->samples = (t->samples + 1) / 2) {
		const struct gp_plan_spec ps = plan_spec(t);
		GP_TRY(t->spec->device->ops->plan_estimate(t->spec->device, &ps, &need, err));
		if (t->samples == 1 || t->spec->memory_bytes == 0 || need.total + need.host <= t->spec->memory_bytes)
			return GP_OK;
	}
}

static enum gp_status set_weights(struct trial *t, struct gp_err *err)
{
	const struct gp_weights *w = t->spec->weights;
	for (int i = 0; w && i < t->spec->graph->params; i++)
		GP_TRY(t->plan->ops->param_set(t->plan, i, w->value[i], err));
	return GP_OK;
}

static enum gp_status make_plan(struct trial *t, struct gp_err *err)
{
	const int blocks = t->spec->graph->blocks;
	GP_TRY(gp_batch_map_of(t->spec->graph, t->batch, &t->map, err));
	GP_TRY(gp_batch_labels_check(t->spec->graph, t->batch, err));
	GP_TRY(choose_samples(t, err));
	const struct gp_plan_spec ps = plan_spec(t);
	GP_TRY(t->spec->device->ops->plan_new(t->spec->device, &ps, &t->plan, err));
	GP_TRY(set_weights(t, err));
	GP_TRY(gp_tie_find(t->spec->graph, t->plan, t->plan, &t->tie, err));
	GP_TRY(gp_tie_values(&t->tie, err));
	GP_TRY(gp_plan_profile_begin(t->plan, &t->profile, err));
	if (!t->profile)
		GP_FAIL(err, GP_UNSUPPORTED, "the device %s cannot measure its layers", t->spec->device->name);
	GP_TRY(gp_alloc_array((void **)&t->taken, (size_t)REPEATS_MOST * (size_t)blocks * PASSES, sizeof *t->taken,
			      err));
	return gp_alloc_array((void **)&t->before, (size_t)blocks * PASSES, sizeof *t->before, err);
}

static void free_plan(struct trial *t)
{
	if (t->plan)
		t->plan->ops->plan_free(t->plan);
	gp_free(t->taken);
	gp_free(t->before);
}

/* --- passes ------------------------------------------------------------------------------------------------------- */

static enum gp_status pass(struct trial *t, double *copy_s, double *loss_s, double *update_s, struct gp_err *err)
{
	const struct gp_device_ops *ops = t->plan->ops;
	struct gp_loss_result loss;
	uint64_t begin = gp_now_ns();
	gp_batch_map_copy(&t->map, t->batch, 0, (size_t)t->samples, 0, t->plan, 0, NULL);
	gp_plan_set_labels(t->plan, 0, gp_batch_labels(t->batch, 0), t->samples);
	*copy_s = seconds_since(begin);
	GP_TRY(ops->forward(t->plan, 0, GP_TRAIN, 0, err));
	begin = gp_now_ns();
	GP_TRY(ops->loss(t->plan, 0, gp_batch_labels(t->batch, 0), t->samples, true,
			 gp_batch_gradient_scale(t->batch, t->samples), &loss, err));
	*loss_s = seconds_since(begin);
	GP_TRY(ops->backward(t->plan, 0, err));
	begin = gp_now_ns();
	GP_TRY(gp_tie_gradients(&t->tie, err));
	GP_TRY(ops->optim_step(t->plan, 0, err));
	GP_TRY(gp_tie_updated(&t->tie, err));
	*update_s = seconds_since(begin);
	return GP_OK;
}

/* What the profile has counted for a block since it was looked at last. */
static double new_seconds(struct trial *t, int block, int way)
{
	const struct gp_graph *g = t->spec->graph;
	uint64_t sum = 0;
	for (int i = g->block[block].first_node; i < gp_graph_block_end(g, block); i++)
		sum += t->profile->node[i].ns[way];
	uint64_t *before = &t->before[block * PASSES + way];
	const double s = (double)(sum - *before) * 1e-9;
	*before = sum;
	return s;
}

static double new_pack_seconds(struct trial *t)
{
	const double s = (double)(t->profile->pack.ns[0] - t->pack_ns) * 1e-9;
	t->pack_ns = t->profile->pack.ns[0];
	return s;
}

/* Packing weights for the next forwards follows from the update. The first pass warms everything up and does not
 * count. */
static enum gp_status repeat(struct trial *t, struct gp_err *err)
{
	const int blocks = t->spec->graph->blocks;
	const uint64_t begin = gp_now_ns();
	for (int r = -1; r < REPEATS_MOST; r++) {
		double copy_s, loss_s, update_s;
		if (r >= REPEATS_LEAST && seconds_since(begin) > t->spec->seconds)
			break;
		GP_TRY(pass(t, &copy_s, &loss_s, &update_s, err));
		const int at = r < 0 ? 0 : r;
		for (int b = 0; b < blocks; b++)
			for (int way = 0; way < PASSES; way++)
				t->taken[(at * blocks + b) * PASSES + way] = new_seconds(t, b, way);
		t->taken[at * blocks * PASSES + FORWARD] += copy_s;
		t->loss_s[at] = loss_s;
		t->update_s[at] = update_s + new_pack_seconds(t);
		t->repeats = r + 1;
	}
	return GP_OK;
}

static double median_of(const struct trial *t, int block, int way)
{
	double x[REPEATS_MOST];
	for (int r = 0; r < t->repeats; r++)
		x[r] = t->taken[(r * t->spec->graph->blocks + block) * PASSES + way];
	return gp_plan_median(x, t->repeats);
}

/* Every block's share of the numbers that are updated. */
static double share_of_update(const struct gp_graph *g, int block)
{
	uint64_t sum = 0;
	for (int i = 0; i < g->params; i++)
		if (g->param[i].trained && g->param[i].node >= g->block[block].first_node &&
		    g->param[i].node < gp_graph_block_end(g, block))
			sum += g->param[i].count;
	return g->trained_elements > 0 ? (double)sum / (double)g->trained_elements : 0;
}

static void take_medians(struct trial *t, int samples, struct gp_plan_blocks *out)
{
	const struct gp_graph *g = t->spec->graph;
	const double scale = (double)samples / t->samples, update_s = gp_plan_median(t->update_s, t->repeats);
	out->samples = samples;
	out->measured = t->samples;
	out->loss_s = scale * gp_plan_median(t->loss_s, t->repeats);
	for (int b = 0; b < g->blocks; b++)
		out->block[b] = (struct gp_plan_block){.forward_s = scale * median_of(t, b, FORWARD),
						       .backward_s = scale * median_of(t, b, BACKWARD),
						       .update_s = update_s * share_of_update(g, b)};
}

enum gp_status gp_plan_blocks_measure(const struct gp_plan_blocks_spec *spec, const struct gp_batch *batch, int samples,
				      struct gp_plan_blocks *out, struct gp_err *err)
{
	struct trial t = {.spec = spec, .batch = batch, .samples = samples};
	struct gp_plan_blocks made = {.blocks = spec->graph->blocks};
	enum gp_status status =
		gp_alloc_array((void **)&made.block, (size_t)spec->graph->blocks, sizeof *made.block, err);
	if (status == GP_OK)
		status = make_plan(&t, err);
	if (status == GP_OK)
		status = repeat(&t, err);
	if (status == GP_OK)
		take_medians(&t, samples, &made);
	free_plan(&t);
	if (status == GP_OK)
		*out = made;
	else
		gp_plan_blocks_deinit(&made);
	return status;
}
