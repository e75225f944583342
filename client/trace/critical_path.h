/* SPDX-License-Identifier: Apache-2.0
 *
 * The critical path of a training step: which of all that was done made the step take as long as it took.
 *
 * Every chunk passes through the same stages (common/wire/interval.h); a table keeps when, for the steps under way. When a step
 * is over, the path is walked backwards from its end. At each stage it asks what this stage waited for last: for the stage before
 * it of the same chunk, or for what had the same thread or the same wire before. There the walk goes on. The time in between is
 * charged to the stage, or to what it waited for, so that all charges together are exactly the step's time.
 *
 *   computing, codecs   from begin to end: the stage's own. Between queued and begin it waited for its thread: where another
 *                       chunk of this session had that in the meantime, the walk goes on there; what remains is time of others
 *                       on the server, and the stage's own here.
 *   wire                a tensor is under way from when it is encoded to when its last byte has arrived. Where a tensor of the
 *                       same way that was encoded before arrived while this one waited, the wire was busy: the time between the
 *                       two arrivals is the wire's, and the walk goes on with that one. Else nobody was before it: one trip
 *                       of an empty message (half of the shortest round trip) is latency, the rest is the wire's. So latency is
 *                       charged where nothing hides it, and an urgent tensor that overtakes another only takes the wire's time.
 *   a chunk's begin     waits for its turn in the window, that is, for the end of the chunk `window` before it.
 *   the end             the update waits for the last chunk, for the server's GRAD_SQUARES, or for COMMITTED of the step before,
 *                       whichever came last.
 *
 * Times of the server are by this side's clock, and wrong by as much as the clocks' offset is: such a mistake moves time between
 * up_wire, down_wire and what the server does, and never changes the sum. A server that does not tell when it did what is one
 * stage, `body`, from when a tensor must have arrived to when its answer must have left.
 *
 * Threads: one at a time. Test: tests/unit/test_critical_path.c
 */
#ifndef GP_CRITICAL_PATH_H
#define GP_CRITICAL_PATH_H

#include "client/trace/bound_by.h"
#include "common/wire/interval.h"

/* Steps of more chunks are not measured. */
#define GP_CRITICAL_CHUNKS_MAX 4096

struct gp_critical_path;

struct gp_moments {
	uint64_t queued_ns, begin_ns, end_ns; /* end_ns 0: it has not been */
};

/* A step that is over. */
struct gp_critical_step {
	uint64_t begin_ns, end_ns;
	uint64_t first;                /* number of its first chunk */
	uint32_t window;               /* chunks in flight */
	uint64_t delay_ns;             /* of an empty message, one way */
	bool told;                     /* the server tells when it did what */
	struct gp_moments update;      /* of this side */
	uint64_t squares_ns;           /* GRAD_SQUARES came; 0: it did not */
	uint64_t committed_ns;         /* COMMITTED of the step before came; 0: there was none */
	struct gp_moments body_update; /* of the server, of the step before */
};

/* GP_INVALID: more chunks than can be measured. */
enum gp_status gp_critical_path_new(uint32_t chunks, struct gp_critical_path **out, struct gp_err *err);
void gp_critical_path_free(struct gp_critical_path *p);
/* A stage of a chunk; those that are not of a chunk are dropped. Tensors of one stage become one, from the first one's begin to
 * the last one's end. A head's forward begins the chunk anew. */
void gp_critical_path_note(struct gp_critical_path *p, const struct gp_interval *i);
/* out->steps is 1, and the sum of out->ns the step's time. Allocates nothing. */
void gp_critical_path_walk(struct gp_critical_path *p, const struct gp_critical_step *s, struct gp_bound_by *out);

#endif
