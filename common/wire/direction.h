/* SPDX-License-Identifier: Apache-2.0
 *
 * The four directions of a session's tensors: activations and gradients, each
 * up and down. Their names, their frames, and which belongs to which, at one
 * place for client and server. PROTOCOL.md section 4.1.
 *
 * Threads: any (constants). Test: tests/unit/test_flows.c
 */
#ifndef GP_DIRECTION_H
#define GP_DIRECTION_H

#include "common/wire/frame.h"

enum gp_direction { GP_ACT_UP, GP_ACT_DOWN, GP_GRAD_UP, GP_GRAD_DOWN, GP_DIRECTIONS };

struct gp_direction_info {
	const char *name; /* "act_up": in JSON, logs, files and errors */
	enum gp_frame_type frame;
	bool up;       /* from the client to the server */
	bool gradient; /* only in training */
	bool at_input; /* it passes the first cut: tensors are the body's inputs; else the second: the body's outputs */
	/* The direction that passes the same cut the other way: of an activation its gradient, and back. */
	enum gp_direction partner;
};

extern const struct gp_direction_info gp_direction_info[GP_DIRECTIONS];

/* Which rung of its ladder each direction uses from a step on (codec_ladder.h); 0 where it has none. */
struct gp_rungs {
	int count; /* GP_DIRECTIONS; 0: no codec changes */
	uint32_t rung[GP_DIRECTIONS];
};

/* False for a frame that carries no tensor of a cut (parameters). */
bool gp_direction_of_frame(enum gp_frame_type type, enum gp_direction *out);

#endif
