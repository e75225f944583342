/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages: packing one Gpsplit__Control onto a channel and unpacking
 * one from it without touching the heap in the steady state. PROTOCOL.md
 * section 5.
 *
 * Threads: the loop thread. Test: tests/unit/test_control.c
 */
#ifndef GP_CONTROL_H
#define GP_CONTROL_H

#include "common/graph/decay.h"
#include "common/codec/codec_ladder.h"
#include "common/wire/channel.h"
#include "common/wire/direction.h"
#include "proto/gpsplit.pb-c.h"

/* Most bytes of a control message once a session is open: no tables are in it but, with clip_norm, GRAD_SQUARES'. */
#define GP_CONTROL_STEADY_BYTES 4096

/* Bytes of GRAD_SQUARES with so many sums, and a little. */
#define GP_CONTROL_SQUARES_BYTES(sums) (64u + 8u * (uint32_t)(sums))

/* Both directions that go down. */
#define GP_COMMITTED_SURVEYED      (2 * GP_LADDER_RUNGS)
/* Bytes of COMMITTED with as many, and a little. */
#define GP_CONTROL_COMMITTED_BYTES (128u + 48u * GP_COMMITTED_SURVEYED)

/* What COMMITTED says beside its step and checkpoint. */
struct gp_committed {
	struct gp_decay_ranks ranks;
	struct gp_rungs rungs;
	int surveyed;
	struct gp_committed_survey {
		enum gp_direction direction;
		int rung;
		uint64_t tensor_bytes, payload_bytes;
		double error, cosine;
	} survey[GP_COMMITTED_SURVEYED];
	uint64_t link_bytes, link_busy_us;
};

/* What COMMIT says. */
struct gp_commit {
	uint64_t step;
	float lr;
	double grad_norm; /* 0 without clip_norm */
	bool checkpoint;
	bool tells_loss;
	double loss;                 /* where it tells it: the mean over the step's labels */
	struct gp_decay_ranks ranks; /* from here on, where the step changes any */
	struct gp_rungs rungs;       /* the same of codecs */
};

/* Memory for unpacked messages: a fixed block first, then heap blocks (a graph), bounded by what the message weighs. */
struct gp_control_arena {
	uint8_t *block; /* from the first message on */
	size_t block_bytes, used;
	struct gp_control_spill *spill;
	size_t spilled, spill_max, spill_limit; /* bytes: now, ever, for this message */
	bool refused;                           /* the message wanted more than spill_max, or memory was out */
	ProtobufCAllocator allocator;
};

/* The longest step timeout that a server may give: a day. */
#define GP_STEP_TIMEOUT_MS_MAX 86400000u

void gp_control_arena_init(struct gp_control_arena *a, size_t spill_max);
/* So much more than usual of a message fits into the fixed block: a message of every step allocates nothing. */
enum gp_status gp_control_arena_reserve(struct gp_control_arena *a, size_t bytes, struct gp_err *err);
void gp_control_arena_deinit(struct gp_control_arena *a);

/* Gives back what the last message took beyond the fixed block. */
void gp_control_arena_reset(struct gp_control_arena *a);

/* Most memory that a message of so many bytes takes when it is unpacked. */
size_t gp_control_unpacked_bytes(size_t message_bytes, size_t spill_max);
/* The message lives until the next unpack, reset or deinit on this arena. GP_PROTO when it is not a Control with a body. */
enum gp_status gp_control_unpack(struct gp_control_arena *a, struct gp_span bytes, const Gpsplit__Control **out,
				 struct gp_err *err);
/* Packs and queues. No allocation within what gp_channel_reserve_control set aside. */
enum gp_status gp_control_send(struct gp_channel *ch, const Gpsplit__Control *m, struct gp_err *err);

#define GP_ERROR_SERVERS 8 /* that one ERROR may name: PROTOCOL.md section 5.5 */

/* Shorthands for the messages of which only one field or two vary. */
enum gp_status gp_control_send_error(struct gp_channel *ch, enum gp_status code, const char *text, uint32_t retry_ms,
				     struct gp_err *err);
/* BUSY, or CANCELED by a server that stops: names others that the client may go to. */
enum gp_status gp_control_send_elsewhere(struct gp_channel *ch, enum gp_status code, const char *text,
					 uint32_t retry_ms, const char *const *servers, size_t count,
					 struct gp_err *err);
enum gp_status gp_control_send_commit(struct gp_channel *ch, const struct gp_commit *c, struct gp_err *err);
enum gp_status gp_control_send_grad_squares(struct gp_channel *ch, uint64_t step, const double *sum, int n,
					    struct gp_err *err);
enum gp_status gp_control_send_chunk_done(struct gp_channel *ch, uint64_t step, uint32_t chunk, struct gp_err *err);
enum gp_status gp_control_send_committed(struct gp_channel *ch, uint64_t step, const struct gp_committed *c,
					 struct gp_err *err);
/* A checkpoint was asked for. `why` NULL: it is on disk; else: why not. */
enum gp_status gp_control_send_checkpointed(struct gp_channel *ch, uint64_t step, const struct gp_committed *c,
					    const char *why, struct gp_err *err);
enum gp_status gp_control_send_fetch_params(struct gp_channel *ch, struct gp_err *err);
enum gp_status gp_control_send_params_done(struct gp_channel *ch, uint32_t count, struct gp_err *err);
enum gp_status gp_control_send_bye(struct gp_channel *ch, struct gp_err *err);

const char *gp_control_name(const Gpsplit__Control *m); /* "commit" */
/* A peer's text made safe to print: everything but printable ASCII replaced, at most size-1 bytes. Returns out. */
const char *gp_text_sanitize(const char *text, char *out, size_t size);

#endif
