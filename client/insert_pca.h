/* SPDX-License-Identifier: Apache-2.0
 *
 * start=pca of linear insertions: the rows of the sender's matrix are the
 * directions in which the values at the cut are largest (eigenvectors of their
 * second moments, which are not centred: a layer without bias cannot take a mean
 * away), the receiver's matrix is its mirror. That is the pair of this rank that
 * loses least of what was looked at: up to GP_PCA_SAMPLES samples, of each at
 * most GP_PCA_ROWS positions, evenly spaced.
 *
 * Threads: one. Test: tests/e2e/insert.sh
 */
#ifndef GP_INSERT_PCA_H
#define GP_INSERT_PCA_H

#include "client/insert_values.h"

#define GP_PCA_SAMPLES 512
#define GP_PCA_ROWS    64

bool gp_insert_wants_pca(const struct gp_insertion_end *end);
/* Sets the weights of the sets that start so, in the order in which they are applied. */
enum gp_status gp_insert_pca(const struct gp_insert_source *from, enum gp_insert_end end, struct gp_err *err);

#endif
