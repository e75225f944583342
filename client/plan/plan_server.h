/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a server takes for the body of a chunk and for its codecs: a few real steps of a training, in a session
 * with one chunk in flight, so that no stage disturbs another. What the server tells of its stages (INTERVALS) is
 * kept, and the middle counts.
 *
 * Threads: the engine's. Test: tests/e2e/plan.sh
 */
#ifndef GP_PLAN_SERVER_H
#define GP_PLAN_SERVER_H

#include "client/engine/engine.h"
#include "common/wire/direction.h"

struct gp_plan_server {
	double forward_s, backward_s; /* of a chunk */
	double update_s;
	double coded_s
		[GP_DIRECTIONS]; /* decoding what goes up, encoding what comes down; all tensors of a chunk; 0: none */
	uint64_t memory_bytes;   /* of that session, host and device; 0: not known */
	uint64_t limit_bytes;    /* what it allows a session; 0: not known */
	char device[64];
	int steps; /* that counted */
};

/* `engine` is a split one that trains, with a window of 1. It does one step to warm up, then `steps` more, or fewer
 * where those take longer than `seconds`. The parameters change: the engine is of no use afterwards. GP_UNSUPPORTED: the
 * server does not tell the times of its stages. */
enum gp_status gp_plan_server_measure(struct gp_engine *engine, struct gp_loader *loader, int steps, double seconds,
				      struct gp_plan_server *out, struct gp_err *err);

#endif
