/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the samples of a batch are from each other, as inputs and by their labels: one side of every
 * distance correlation of the privacy meter (privacy_meter.h).
 *
 *   pictures   the Euclidean distance of what the model reads, behind augmentation and normalization
 *   texts      that of the counts of their tokens: how often each id stands in a text, padding left out. No
 *              embedding is involved; the order of the tokens does not count
 *   labels     classes: 0 where they are equal, else 1 (one-hot vectors, scaled); values: their difference;
 *              masked words have none
 *
 * Threads: any; no state. Test: tests/unit/test_privacy_meter.c
 */
#ifndef GP_PRIVACY_INPUTS_H
#define GP_PRIVACY_INPUTS_H

#include "client/data/dataset.h"

/* The first n samples' distances into d[n * n]. */
enum gp_status gp_privacy_input_distances(const struct gp_batch *batch, int n, double *d, struct gp_err *err);
/* False: a sample has no single label, and d is as it was. */
bool gp_privacy_label_distances(const struct gp_batch *batch, int n, double *d);

#endif
