/* SPDX-License-Identifier: Apache-2.0
 *
 * The labels of a batch on their way to a device's `loss`: one a sample, or P a
 * sample for a model whose output is (P,K), as a masked language model has them;
 * there GP_NO_LABEL stands in the place of a label that is missing.
 *
 * The loss is a mean over all labels of a batch, whatever chunks it is divided
 * into. How many there are is known before its first chunk, and with it the factor
 * of every chunk's gradients.
 *
 * Threads: any; pure functions. Test: tests/unit/test_batch_labels.c
 */
#ifndef GP_BATCH_LABELS_H
#define GP_BATCH_LABELS_H

#include "client/data/dataset.h"
#include "common/graph/graph.h"

/* Labels that the model's output takes for each sample. */
size_t gp_batch_labels_of_output(const struct gp_graph *g);
/* GP_INVALID where the batch has another number of them. */
enum gp_status gp_batch_labels_check(const struct gp_graph *g, const struct gp_batch *batch, struct gp_err *err);
/* How many labels the valid samples have, GP_NO_LABEL not counted. */
uint64_t gp_batch_labelled(const struct gp_batch *batch);
/* 1 / that; where a sample has one label, 1 / `samples`, those of a step. */
float gp_batch_gradient_scale(const struct gp_batch *batch, int samples);

#endif
