/* SPDX-License-Identifier: Apache-2.0
 *
 * Labels of a batch. See batch_labels.h. Test: tests/unit/test_batch_labels.c
 */
#include "client/engine/batch_labels.h"

#include "common/graph/device.h"

/* Datasets, which know no device, mark a missing label as devices read it. */
_Static_assert(GP_LABEL_NONE == GP_NO_LABEL, "a label that is missing has one value");

size_t gp_batch_labels_of_output(const struct gp_graph *g)
{
	const struct gp_shape *out = gp_graph_output_shape(g);
	return out->ndim == 2 ? (size_t)out->dim[0] : 1;
}

enum gp_status gp_batch_labels_check(const struct gp_graph *g, const struct gp_batch *batch, struct gp_err *err)
{
	const size_t wanted = gp_batch_labels_of_output(g), there = gp_batch_labels_each(batch);
	if (wanted != there)
		GP_FAIL(err, GP_INVALID, "%s wants %zu label%s for each sample, and the data has %zu", g->name, wanted,
			wanted == 1 ? "" : "s", there);
	return GP_OK;
}

uint64_t gp_batch_labelled(const struct gp_batch *batch)
{
	const size_t each = gp_batch_labels_each(batch), all = (size_t)batch->valid * each;
	const int32_t *label = batch->label;
	uint64_t labelled = 0;
	if (batch->label_info.type.shape.ndim == 0)
		return (uint64_t)batch->valid;
	for (size_t i = 0; i < all; i++)
		labelled += label[i] != GP_NO_LABEL;
	return labelled;
}

float gp_batch_gradient_scale(const struct gp_batch *batch, int samples)
{
	if (batch->label_info.type.shape.ndim == 0)
		return 1.0f / (float)samples;
	const uint64_t labelled = gp_batch_labelled(batch);
	return labelled > 0 ? 1.0f / (float)labelled : 0.0f;
}
