/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gpclient model show` tells about a model and a cut: per block, per part
 * and per tensor that crosses the link, or stays here though both head and tail
 * have a part in it; of encoders the cuts that have names; and what each part costs
 * (part_costs.h). Text and JSON from the same figures. Images are shown as CxHxW, as in PyTorch.
 *
 * Threads: any; nothing here is kept between calls. Test: tests/unit/test_model_view.c
 */
#ifndef GP_MODEL_VIEW_H
#define GP_MODEL_VIEW_H

#include <stdio.h>

#include "client/engine/crossing.h"
#include "client/insert/insert.h"
#include "client/costs/part_costs.h"
#include "client/costs/partitions.h"

enum gp_view_part { GP_VIEW_HEAD, GP_VIEW_BODY, GP_VIEW_TAIL, GP_VIEW_TOTAL, GP_VIEW_PARTS };
extern const char *const gp_view_part_names[GP_VIEW_PARTS];

struct gp_view_sum {
	int first_block, end_block, layers;
	uint64_t parameters; /* weights and biases, frozen ones too */
	uint64_t frozen;     /* of these */
	uint64_t statistics; /* running means and variances */
	struct gp_part_costs costs;
};

/* What a model has at a cut without an insertion. */
struct gp_view_plain {
	uint64_t bytes[GP_DIRECTIONS];                /* that cross, of one sample */
	struct gp_partition partition[GP_PARTITIONS]; /* of an encoder */
	int partitions;
};

struct gp_model_view {
	const struct gp_graph *graph; /* must outlive the view */
	const char *spec;
	struct gp_cut cut;
	int64_t batch, chunks, chunk_samples; /* chunk_samples: of the largest chunk */
	struct gp_view_sum part[GP_VIEW_PARTS];
	struct gp_session_spec session; /* of one sample, without codecs */
	struct gp_crossing *cross;
	enum gp_count count; /* that of the tables of blocks, layers and parts; the table of costs has all */
	struct gp_view_plain plain;
	const struct gp_insertion *insertion; /* NULL: none */
	const struct gp_memory_view *memory;  /* NULL: not asked for; memory_view.h */
};

/* The graph may have frozen parts. GP_INVALID when the model cannot be cut there or a batch has fewer samples than chunks. */
enum gp_status gp_model_view_init(struct gp_model_view *v, const char *spec, const struct gp_graph *g,
				  const struct gp_cut *cut, int64_t batch, int64_t chunks, struct gp_err *err);
enum gp_status gp_view_plain_find(const struct gp_graph *g, const struct gp_cut *cut, struct gp_view_plain *out,
				  struct gp_err *err);
/* Compares with the model without the insertion that the graph has: `plain` is what crossed then. `ins` outlives the view. */
void gp_model_view_compare(struct gp_model_view *v, const struct gp_insertion *ins, const struct gp_view_plain *plain);
/* Bytes of all tensors that cross in a direction. */
uint64_t gp_model_view_bytes(const struct gp_model_view *v, enum gp_direction d, int64_t samples);
/* Safe on a zeroed struct. */
void gp_model_view_deinit(struct gp_model_view *v);
/* `layers`: one line per layer, not only per block. */
void gp_model_view_print(const struct gp_model_view *v, bool layers, FILE *to);
enum gp_status gp_model_view_json(const struct gp_model_view *v, FILE *to, struct gp_err *err);

/* Every model as {"name", "summary", "options"}. */
enum gp_status gp_model_list_json(FILE *to, struct gp_err *err);

#endif
