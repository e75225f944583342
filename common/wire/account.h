/* SPDX-License-Identifier: Apache-2.0
 *
 * Link accounting: per direction and frame kind the tensor,
 * payload and wire bytes, frames and time per stage; sums for everything else
 * that crossed. Plain counters, and the bandwidth of what was received. What
 * this end has written may lie in a buffer of the kernel: how much of it has
 * crossed in which time is told by TCP_INFO (common/net/tcp_info.h).
 *
 * Threads: the loop thread; others hand their stage times over with the work
 * item. Test: tests/unit/test_account.c
 */
#ifndef GP_ACCOUNT_H
#define GP_ACCOUNT_H

#include <jansson.h>

#include "common/base/clock.h"
#include "common/net/conn.h"
#include "common/wire/frame.h"

enum gp_stage {
	GP_STAGE_COMPUTE, /* forward/backward that made or used the tensor */
	GP_STAGE_ENCODE,
	GP_STAGE_QUEUE, /* encoded until its first byte is written */
	GP_STAGE_WIRE,  /* first to last byte */
	GP_STAGE_DECODE,
	GP_STAGE_WAIT, /* arrived until work on it begins */
	GP_STAGE_COUNT
};

struct gp_kind_account {
	uint64_t frames, tensor_bytes, payload_bytes, wire_bytes;
	uint64_t uncompressed_bytes; /* as tensor_bytes, but what tensors would have without an insertion at the cut */
	uint64_t padding_bytes;      /* of tensor_bytes: rows that no sample has, as far as that is known */
	uint64_t stage_ns[GP_STAGE_COUNT];
	/* Received in stage_ns[GP_STAGE_WIRE]: of wire_bytes, what came behind the bytes that the kernel gave together with a
	 * frame's first, without what TLS adds. */
	uint64_t timed_bytes;
};

struct gp_dir_account {
	struct gp_kind_account kind[GP_FRAME_TYPE_COUNT];
	/* On the wire, record headers and what TLS adds included; its handshake counts with the preface. */
	uint64_t control_bytes, heartbeat_bytes, preface_bytes;
	uint64_t wire_bytes; /* everything that crossed */
	/* Received while a tensor was under way: bytes on the wire, with what TLS adds, and the time that they took. */
	uint64_t timed_bytes, timed_ns;
};

struct gp_account {
	struct gp_dir_account sent, received;
};

/* So many bytes of frames, whole or not, that have crossed are progress (PROTOCOL.md section 5.4). */
#define GP_PROGRESS_BYTES 65536
/* Bytes of frames that have crossed both ways, those under way included. */
uint64_t gp_account_frame_bytes(const struct gp_account *a);
/* Whether this end goes through the stage with a tensor that it sends, or that comes to it: `wire` belongs to both. */
bool gp_stage_is_here(enum gp_stage s, bool sender);
/* b -= a, field by field: what happened between two copies. */
void gp_account_subtract(struct gp_account *b, const struct gp_account *a);
/* Adds b into a: figures over reconnects. */
void gp_account_add(struct gp_account *a, const struct gp_account *b);
/* Received bytes divided by the time of receiving them, in bytes/s; NaN where each frame came in one read of the kernel's. Frames
 * of other kinds that overtake one lengthen its time. */
double gp_kind_bandwidth(const struct gp_kind_account *k);
/* The same of all kinds together, whose frames overlap: bytes that came while any was under way, by that time. */
double gp_dir_bandwidth(const struct gp_dir_account *d);
/* {"act_up":{"tensor_bytes":..,"payload_bytes":..,"wire_bytes":..,"frames":..,"encode_s":..,...},...}: new reference. */
json_t *gp_account_json(const struct gp_account *a);
/* (kernel - ours) / ours, per direction as this end sees it: up = sent, down = received. 0 without kernel figures. */
void gp_account_kernel_diff(const struct gp_account *a, const struct gp_tcp_figures *k, double *up, double *down);

#endif
