/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training takes of a processor's memory, for `gpclient model show
 * --memory`: by part and by structure, what a chunk keeps of each block, and the
 * same with the flags that save memory. The figures are the plans' own
 * (plan_estimate, plan_maps of common/graph/device.h); nothing is taken. What a
 * GPU takes is told by a training's closing lines.
 *
 * Threads: one. Tests: tests/e2e/recompute.sh, tests/e2e/json_keys.sh
 */
#ifndef GP_MEMORY_VIEW_H
#define GP_MEMORY_VIEW_H

#include <jansson.h>

#include "client/costs/model_view.h"
#include "client/job/compress.h"

struct gp_memory_options {
	struct gp_optim optim;
	int window; /* chunks in flight */
	struct gp_session_spec
		session; /* of it maps, coded, no_master and recompute: what --compress and --recompute say */
};

/* Head, body and tail as a split training has them; in place of their sum, the whole model as a local training has it. */
#define GP_MEMORY_WHOLE GP_VIEW_TOTAL

/* The whole model with one flag. */
struct gp_memory_saving {
	const char *flags;           /* as the command line has them; "": none */
	struct gp_plan_memory whole; /* in a local training: one chunk in flight */
	uint64_t maps;               /* kept of a chunk */
};

#define GP_MEMORY_SAVINGS 9

struct gp_memory_view {
	const struct gp_model_view *view;
	struct gp_memory_options options;
	char flags[GP_COMPRESS_TEXT + 32]; /* what the options' session says, as the command line has it; "": nothing */
	int threads;
	struct gp_plan_memory part[GP_VIEW_PARTS];
	uint64_t maps[GP_VIEW_PARTS]; /* of a chunk */
	/* A chunk of the whole model, by block: with the options' flags, and with --recompute. */
	uint64_t *block_maps, *block_maps_recomputed;
	struct gp_memory_saving saving[GP_MEMORY_SAVINGS];
};

/* `v` outlives it. Without it gp_memory_view_deinit is left to do. GP_NOMEM, and what a plan refuses. */
enum gp_status gp_memory_view_find(const struct gp_model_view *v, const struct gp_memory_options *o,
				   struct gp_memory_view *out, struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_memory_view_deinit(struct gp_memory_view *m);
void gp_memory_view_print(const struct gp_memory_view *m, FILE *to);
/* NULL: out of memory. */
json_t *gp_memory_view_json(const struct gp_memory_view *m);

#endif
