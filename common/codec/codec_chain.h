/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to codec_chain.c, codec_state.c and codec_undo.c: what an instance is
 * made of.
 *
 * Threads: as struct gp_codec (common/codec/codec.h). Test: tests/unit/test_codec_tree.c
 */
#ifndef GP_CODEC_CHAIN_H
#define GP_CODEC_CHAIN_H

#include "common/codec/codec_tree.h"

struct gp_codec_byte_stage {
	const struct gp_codec_ops *ops;
	void *state;
	uint64_t most; /* bytes of its input */
};

struct gp_codec {
	struct gp_codec_spec spec;
	enum gp_codec_role role;
	uint32_t chunks;
	uint64_t n, most; /* elements of a tensor now (gp_codec_resize), and of the shape it was opened for */
	/* Encoding and decoding share a tree unless a stage remembers: then each has its own, like two ends. */
	struct gp_codec_tree tree, other;
	bool two_trees;
	struct gp_codec_byte_stage stage[GP_CODEC_MAX_STAGES];
	int stages;
	size_t bound;
	uint8_t *scratch[2]; /* bound bytes each, for byte stages */
	int coded;           /* byte stages that paid in the last pass */
	const struct gp_codec_device *device;
	struct gp_codec_stats stats;
};

#endif
