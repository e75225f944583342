/* SPDX-License-Identifier: Apache-2.0
 *
 * The network that an attacker trains: from the tensors that cross the first cut
 * back to the picture that they were made from. A graph like a model's, from the
 * project's own ops; nothing of the attacked model is in it.
 *
 *   maps      batch norm, a 3x3 convolution, and transposed convolutions that double the resolution until it is
 *             that of the picture (one with a larger stride where doubling does not lead there), each with batch
 *             norm and ReLU; then a 3x3 convolution to the picture's channels. 32 channels at the picture's
 *             resolution, twice as many at half of it, 256 at most
 *   vectors   batch norm, a hidden linear layer of 512 with ReLU, a linear layer to all of the picture's numbers
 *
 * Where several tensors cross, those as large as the largest map are read together, and the others are left out.
 *
 * Threads: any; no state. Test: tests/unit/test_attack.c
 */
#ifndef GP_ATTACK_DECODER_H
#define GP_ATTACK_DECODER_H

#include "common/graph/graph.h"

/*
 * `in`: shapes of `count` tensors of one sample; `picture`: (H,W,C). The graph's inputs are those tensors that *read (bit i:
 * tensor i) says, in their order; its output has as many numbers as the picture, in its order. GP_UNSUPPORTED where no
 * tensor is a map or a vector, or a map is larger than the picture.
 */
enum gp_status gp_attack_decoder(const struct gp_shape *in, int count, const struct gp_shape *picture, uint64_t *read,
				 struct gp_graph **out, struct gp_err *err);

#endif
