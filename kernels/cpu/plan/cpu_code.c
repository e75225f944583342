/* SPDX-License-Identifier: Apache-2.0
 *
 * Coders of a CPU plan, arrays that pass through them, and parameters that do.
 * See cpu_code.h. Tests: tests/unit/test_plan_store.c, tests/unit/test_plan_coded.c
 */
#include "kernels/cpu/plan/cpu_code.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/codec/codec_store.h"
#include "kernels/cpu/plan/parallel.h"

/* --- coders ------------------------------------------------------------------------------------------------------- */

const struct gp_codec_spec *gp_cpu_codec(const struct cpu_plan *p, int which)
{
	const struct gp_plan_spec *spec = &p->base.spec;
	if (!spec->train)
		return NULL;
	return which == CPU_CODER_MAPS ? spec->maps : spec->coded[which];
}

/* Equal codecs have the coders of the first of them; coders remember nothing. */
static int owner_of(const struct cpu_plan *p, int which)
{
	int k = 0;
	while (k < which &&
	       (!gp_cpu_codec(p, k) || strcmp(gp_cpu_codec(p, k)->text, gp_cpu_codec(p, which)->text) != 0))
		k++;
	return k;
}

static bool owns(const struct cpu_plan *p, int which)
{
	return gp_cpu_codec(p, which) && owner_of(p, which) == which;
}

uint64_t gp_cpu_coders_bytes(const struct cpu_plan *p)
{
	uint64_t sum = 0;
	for (int k = 0; k < CPU_CODERS; k++)
		sum += owns(p, k) ? (uint64_t)p->threads * gp_store_coder_bytes(gp_cpu_codec(p, k)) : 0;
	return sum;
}

static enum gp_status new_coders(struct cpu_plan *p, int which, struct gp_err *err)
{
	void *list;
	GP_TRY(gp_alloc_array(&list, (size_t)p->threads, sizeof **p->coder, err));
	p->coder[which] = list;
	for (int i = 0; i < p->threads; i++)
		GP_TRY(gp_store_coder_new(gp_cpu_codec(p, which), &p->coder[which][i], err));
	return GP_OK;
}

enum gp_status gp_cpu_coders_new(struct cpu_plan *p, struct gp_err *err)
{
	for (int k = 0; k < CPU_CODERS; k++) {
		if (owns(p, k))
			GP_TRY(new_coders(p, k, err));
		else if (gp_cpu_codec(p, k))
			p->coder[k] = p->coder[owner_of(p, k)];
	}
	return GP_OK;
}

void gp_cpu_coders_free(struct cpu_plan *p)
{
	for (int k = CPU_CODERS - 1; k >= 0; k--) {
		for (int i = 0; owns(p, k) && p->coder[k] && i < p->threads; i++)
			gp_store_coder_free(p->coder[k][i]);
		if (owns(p, k))
			gp_free(p->coder[k]);
		p->coder[k] = NULL;
	}
}

/* --- an array ----------------------------------------------------------------------------------------------------- */

struct job {
	struct gp_store_coder *const *coder;
	enum cpu_way way;
	float *x;
	uint8_t *coded;
	uint64_t floats;
};

static void code_part(void *arg, int part, int parts)
{
	const struct job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share((int64_t)gp_store_blocks(job->floats), 1, part, parts);
	struct gp_store_coder *c = job->coder[part];
	for (int64_t block = r.from; block < r.to; block++) {
		if (job->way == CPU_ENCODE)
			gp_store_encode(c, job->x, job->floats, (uint64_t)block, job->coded);
		else if (job->way == CPU_DECODE)
			gp_store_decode(c, job->coded, job->floats, (uint64_t)block, job->x);
		else
			gp_store_round_trip(c, job->x, job->floats, (uint64_t)block);
	}
}

void gp_cpu_code(const struct cpu_plan *p, int which, enum cpu_way way, float *x, uint8_t *coded, uint64_t floats)
{
	struct job job = {p->coder[which], way, x, coded, floats};
	gp_cpu_parallel(gp_cpu_parts(p->threads, (int64_t)floats), code_part, &job);
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

bool gp_cpu_keeps_decoded(const struct cpu_plan *p)
{
	return gp_cpu_codec(p, GP_STRUCT_WEIGHTS) && !p->base.spec.no_master;
}

void gp_cpu_weights_decode(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = 0; gp_cpu_keeps_decoded(p) && i < g->params; i++) {
		if (!g->param[i].trained)
			continue;
		float *decoded = p->decoded + p->param[i].decoded_offset;
		gp_cpu_copy(p->threads, decoded, p->values + p->param[i].value_offset, (int64_t)g->param[i].count);
		gp_cpu_code(p, GP_STRUCT_WEIGHTS, CPU_ROUND_TRIP, decoded, NULL, g->param[i].count);
	}
}

/* One that follows another (gp_graph_tie) gets its values. */
void gp_cpu_weights_updated(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (!gp_cpu_codec(p, GP_STRUCT_WEIGHTS) || !p->base.spec.no_master)
		return;
	for (int i = 0; i < g->params; i++)
		if (g->param[i].trained && !g->param[i].follows)
			gp_cpu_code(p, GP_STRUCT_WEIGHTS, CPU_ROUND_TRIP, p->values + p->param[i].value_offset, NULL,
				    g->param[i].count);
}
