/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to model_view.c, model_view_text.c and model_view_json.c: the figures that
 * text and JSON both show.
 *
 * Threads: any; pure functions. Test: tests/unit/test_model_view.c
 */
#ifndef GP_MODEL_VIEW_IMPL_H
#define GP_MODEL_VIEW_IMPL_H

#include "client/costs/model_view.h"

/* One line of the table of tensors. */
struct gp_view_row {
	const char *name;
	const struct gp_type *type;          /* of one sample */
	const struct gp_direction_info *way; /* NULL: it stays here */
	const char *kind;                    /* "activation", "data", "gradient" */
	int cut;
	bool has_gradient;
};

/* Weights and biases. */
uint64_t gp_view_node_parameters(const struct gp_graph *g, const struct gp_node *n);
/* Blocks first to end - 1. */
struct gp_view_sum gp_view_sum_blocks(const struct gp_graph *g, int first, int end);
uint64_t gp_view_forward_macs(const struct gp_view_sum *s, enum gp_count count);

struct gp_view_row gp_view_crossing_row(const struct gp_model_view *v, int flow);
/* Whether an input of the tail comes from the head or the data, without the link; its row. */
bool gp_view_stays_here(const struct gp_model_view *v, int tail_input);
struct gp_view_row gp_view_staying_row(const struct gp_model_view *v, int tail_input);
uint64_t gp_view_row_bytes(const struct gp_view_row *r, int64_t samples);

/* Channels first for images. */
struct gp_shape gp_view_torch_order(const struct gp_shape *s);
/* The rank of a decaying set after so many changes, 0 to s->times of them. */
int64_t gp_view_rank(const struct gp_insert_set *s, int changes);
/* "none" where there is no insertion. Returns text. */
const char *gp_view_insertion_text(const struct gp_model_view *v, enum gp_insert_end end, char text[GP_INSERT_TEXT]);

#endif
