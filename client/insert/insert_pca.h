/* SPDX-License-Identifier: Apache-2.0
 *
 * start=pca of linear insertions, of the straight path of bottlenecks, and of
 * convolutions whose patches do not overlap. The rows of the sender's matrix are the
 * directions in which the values at the cut, or patches of them, are largest
 * (eigenvectors of their second moments); the receiver's matrix is the transpose. No
 * other pair of matrices of this rank has a smaller error on the values that are
 * read: of GP_PCA_SAMPLES samples (a smaller set is read again), at most GP_PCA_ROWS
 * evenly spaced positions or patches each. Where these are few beside the features,
 * as in small maps of many channels, up to GP_PCA_SAMPLES_MOST samples are read, but
 * no more than an epoch has. Positions of padding count like others.
 *
 * Moments are not centred where a layer has no bias, because it cannot subtract a
 * mean then. With biases, those of a convolution are centred on the mean c of each
 * channel: the encoder's bias is -V c, the decoder's is c. A decoder has one bias for
 * all positions of a patch, so the rest of a mean that differs between positions
 * counts as a direction like others.
 *
 * Threads: one. Tests: tests/unit/test_insert_pca.c, tests/e2e/insert.sh
 */
#ifndef GP_INSERT_PCA_H
#define GP_INSERT_PCA_H

#include "client/insert/insert_values.h"

#define GP_PCA_SAMPLES      512
#define GP_PCA_SAMPLES_MOST 4096
#define GP_PCA_ROWS         64

bool gp_insert_wants_pca(const struct gp_insertion_end *end);
/* Sets the weights of the sets with start=pca, in the order in which they are applied. */
enum gp_status gp_insert_pca(const struct gp_insert_source *from, enum gp_insert_end end, struct gp_err *err);

#endif
