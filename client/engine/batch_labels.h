/* SPDX-License-Identifier: Apache-2.0
 *
 * The labels of a batch, as a device's `loss` takes them: one for each sample, or
 * P for each sample where the model's output is (P,K), as that of a masked language
 * model. A sample with fewer labels than P has GP_NO_LABEL in the remaining places.
 *
 * The loss is the mean over all labels of a batch, however the batch is divided into
 * chunks. Their number is known before the first chunk, and it gives the factor by
 * which every chunk's gradients are scaled.
 *
 * Threads: any; pure functions. Test: tests/unit/test_batch_labels.c
 */
#ifndef GP_BATCH_LABELS_H
#define GP_BATCH_LABELS_H

#include "client/data/dataset.h"
#include "common/graph/graph.h"

/* How many labels the model's output takes for each sample. */
size_t gp_batch_labels_of_output(const struct gp_graph *g);
/* GP_INVALID where the batch has another number of labels for each sample. */
enum gp_status gp_batch_labels_check(const struct gp_graph *g, const struct gp_batch *batch, struct gp_err *err);
/* How many labels the valid samples have, GP_NO_LABEL not counted. */
uint64_t gp_batch_labelled(const struct gp_batch *batch);
/* The factor of the batch's gradients: 1 / gp_batch_labelled; where a sample has one label, 1 / `samples` of the step. */
float gp_batch_gradient_scale(const struct gp_batch *batch, int samples);

#endif
