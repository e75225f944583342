/* SPDX-License-Identifier: Apache-2.0
 *
 * start=pca of linear insertions, and of the straight path of bottlenecks: the rows
 * of the sender's matrix are the directions in which the values at the cut are
 * largest (eigenvectors of their second moments, which are not centred, because a
 * layer without bias cannot subtract a mean); the receiver's matrix is the
 * transpose. No other pair of matrices of this rank has a smaller error on the
 * values that are read: of up to GP_PCA_SAMPLES samples, at most GP_PCA_ROWS evenly
 * spaced positions each.
 *
 * Threads: one. Test: tests/e2e/insert.sh
 */
#ifndef GP_INSERT_PCA_H
#define GP_INSERT_PCA_H

#include "client/insert/insert_values.h"

#define GP_PCA_SAMPLES 512
#define GP_PCA_ROWS    64

bool gp_insert_wants_pca(const struct gp_insertion_end *end);
/* Sets the weights of the sets with start=pca, in the order in which they are applied. */
enum gp_status gp_insert_pca(const struct gp_insert_source *from, enum gp_insert_end end, struct gp_err *err);

#endif
