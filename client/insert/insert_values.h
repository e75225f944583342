/* SPDX-License-Identifier: Apache-2.0
 *
 * The values that an insertion compresses, chunk after chunk: this runs the part of
 * the model in front of a cut, forward only and in evaluation mode; labels are not
 * used. In front of the second cut the part includes the insertion at the first one.
 * start=pca (insert_pca.h) and `insert-fit` (insert_fit.h) use the values.
 *
 * Threads: one at a time for a struct. Test: tests/e2e/insert.sh
 */
#ifndef GP_INSERT_VALUES_H
#define GP_INSERT_VALUES_H

#include "client/engine/batch_map.h"
#include "client/insert/insert.h"
#include "common/graph/weights.h"

/* Where values come from. All of it outlives what is made of it. */
struct gp_insert_source {
	const struct gp_graph *plain; /* the model without insertions */
	const struct gp_cut *cut;
	const struct gp_insertion *ins; /* after gp_insert */
	struct gp_weights *weights;     /* of the model with them */
	const char *device;
	int threads;
	int batch; /* samples of a batch of `loader`, which gives full ones */
	uint64_t seed;
	struct gp_loader *loader;
};

struct gp_insert_values {
	const struct gp_insert_source *from;
	struct gp_device *device;
	struct gp_graph *front;
	struct gp_plan *plan;
	int output;
	uint64_t count; /* elements of a chunk's value */
};

/* On failure `v` needs no close. */
enum gp_status gp_insert_values_open(struct gp_insert_values *v, const struct gp_insert_source *from,
				     enum gp_insert_end end, struct gp_err *err);
void gp_insert_values_close(struct gp_insert_values *v);
/* The value of the next batch: `count` numbers, valid until the next call. */
enum gp_status gp_insert_values_next(struct gp_insert_values *v, const float **out, struct gp_err *err);

/* Copies the plan's parameters, by their names, from the weights into the plan, or back. */
enum gp_status gp_insert_set_weights(struct gp_plan *plan, const struct gp_weights *w, struct gp_err *err);
enum gp_status gp_insert_get_weights(struct gp_plan *plan, struct gp_weights *w, struct gp_err *err);

#endif
