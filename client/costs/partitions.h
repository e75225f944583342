/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts of encoders that have names: which blocks of roberta and bert stay with
 * the client, written fNlM after how many of the first and of the last parts
 * these are. The first parts are the embeddings, the attention of layer 0 and
 * the rest of layer 0; the last ones are the classifier, or the head of a masked
 * language model, and the last layer.
 * Other models have none.
 *
 * Threads: any; pure functions. Test: tests/unit/test_partitions.c
 */
#ifndef GP_PARTITIONS_H
#define GP_PARTITIONS_H

#include "common/graph/graph_part.h"

#define GP_PARTITIONS 4

struct gp_partition {
	const char *name;         /* "type1": for --cut */
	const char *first, *last; /* what stays here, for people */
	const char *lacks; /* why the model cannot be cut so: "needs cuts=fine"; NULL: it can, and `cut` says where */
	struct gp_cut cut;
	uint64_t up_bytes, down_bytes; /* of the activations that cross, of one sample */
};

/* Fills in out[GP_PARTITIONS]; *count is 0 where the model is no encoder. */
enum gp_status gp_partitions_find(const struct gp_graph *g, struct gp_partition out[GP_PARTITIONS], int *count,
				  struct gp_err *err);
/* As gp_cut_parse; the name of a partition may stand in the place of H:T. */
enum gp_status gp_partition_parse(const struct gp_graph *g, const char *text, struct gp_cut *out, struct gp_err *err);
/* "2:-3", the tail counted from the back. */
const char *gp_partition_text(const struct gp_graph *g, const struct gp_cut *cut, char text[24]);

#endif
