/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of the wire behind the preface: record headers and tensor-frame
 * headers, written and read field by field, little-endian. Pure functions: no I/O, no
 * allocation. Normative description: proto/PROTOCOL.md sections 3-4.
 *
 * Glossary: a *record* is the unit that the stream is cut into (a control
 * message, a heartbeat, or one segment of a tensor frame); a *frame* is one
 * tensor's header and payload, sent as one or more segments; a *class* is a
 * priority: at most one frame of each class is under way in a direction, so a
 * more urgent frame overtakes at a segment boundary.
 *
 *
 * Threads: any (pure functions). Test: tests/unit/test_frame.c; fuzz:
 * tests/fuzz/fuzz_frame.c
 */
#ifndef GP_FRAME_H
#define GP_FRAME_H

#include "common/base/mem.h"
#include "common/net/preface.h"

#define GP_RECORD_HEADER_BYTES   16
#define GP_FRAME_HEADER_BYTES    64
/* Record length of a segment: the first one holds the frame header too. */
#define GP_SEGMENT_BYTES_MIN     (64u << 10)
#define GP_SEGMENT_BYTES_DEFAULT (128u << 10) /* where WELCOME says none */
#define GP_SEGMENT_BYTES_SERVED  (64u << 10)  /* what gpserverd says: an urgent frame waits for no larger one */
#define GP_SEGMENT_BYTES_MAX     (256u << 10)
#define GP_CONTROL_BYTES_MAX     (4u << 20)
#define GP_FRAME_BYTES_MAX       (1ull << 30) /* payload of one frame, before a session agrees on less */
#define GP_PING_BYTES            8

/* Pinned wire ids. */
enum gp_record_kind {
	GP_RECORD_CONTROL = 1, /* protobuf Control message */
	GP_RECORD_SEGMENT = 2, /* part of a tensor frame; the first one begins with the frame header */
	GP_RECORD_PING = 3,    /* 8 bytes, echoed */
	GP_RECORD_PONG = 4,
};

/* Lower is more urgent. */
enum gp_class {
	GP_CLASS_CONTROL = 0,
	GP_CLASS_URGENT = 1, /* GRAD_UP, ACT_DOWN: what unblocks the longest chain of work */
	GP_CLASS_BULK = 2,   /* ACT_UP, GRAD_DOWN; probes */
	GP_CLASS_PARAM = 3,  /* PARAM_UP, PARAM_DOWN */
	GP_CLASS_COUNT
};

/* Pinned wire ids. */
enum gp_frame_type {
	GP_FRAME_ACT_UP = 1,
	GP_FRAME_ACT_DOWN = 2,
	GP_FRAME_GRAD_UP = 3,
	GP_FRAME_GRAD_DOWN = 4,
	GP_FRAME_PARAM_UP = 5, /* chunk = parameter index of the body graph, raw fp32 */
	GP_FRAME_PARAM_DOWN = 6,
	GP_FRAME_PROBE_UP = 7, /* of a measuring session: bytes that mean nothing */
	GP_FRAME_PROBE_DOWN = 8,
	GP_FRAME_TYPE_COUNT
};

#define GP_FRAME_FLAG_EVAL      0x01 /* forward with running statistics; no gradient follows */
#define GP_FRAME_FLAG_CALIBRATE 0x02 /* with EVAL: with the chunk's own, which become the running ones */

struct gp_record_head {
	uint8_t kind;      /* enum gp_record_kind */
	uint8_t klass;     /* enum gp_class */
	uint8_t flags;     /* GP_SEGMENT_* */
	uint32_t len;      /* bytes after the record header */
	uint32_t body_sum; /* control: gp_control_checksum of those bytes; else 0 */
};
#define GP_SEGMENT_FIRST 0x01
#define GP_SEGMENT_LAST  0x02

struct gp_frame_head {
	uint8_t type;   /* enum gp_frame_type */
	uint8_t flags;  /* GP_FRAME_FLAG_* */
	uint16_t codec; /* wire id of the first codec stage */
	uint32_t chunk;
	uint16_t tensor; /* of activations and gradients: which input, or output, of the body; else 0 */
	/* Positions that the chunk's sequences have, for activations and gradients; 0: all of them (PROTOCOL.md 4.4). */
	uint32_t length;
	uint64_t session;
	uint64_t step;
	uint64_t payload_len;
	uint64_t checksum; /* XXH3-64 of the payload, seed 0 */
};

void gp_record_head_write(const struct gp_record_head *h, uint8_t out[GP_RECORD_HEADER_BYTES]);
/* Checks the header's own checksum, kind, class, flags and per-kind length limits before anything else sees them. */
enum gp_status gp_record_head_read(const uint8_t in[GP_RECORD_HEADER_BYTES], struct gp_record_head *out,
				   struct gp_err *err);

void gp_frame_head_write(const struct gp_frame_head *h, uint8_t out[GP_FRAME_HEADER_BYTES]);
enum gp_status gp_frame_head_read(const uint8_t in[GP_FRAME_HEADER_BYTES], struct gp_frame_head *out,
				  struct gp_err *err);

enum gp_class gp_frame_class(enum gp_frame_type type);
const char *gp_frame_type_name(enum gp_frame_type type);      /* "act_up"; "?" when out of range */
uint32_t gp_control_checksum(const uint8_t *msg, size_t len); /* XXH32, seed 0 */
uint64_t gp_frame_checksum(const uint8_t *payload, size_t len);

/* Bytes on the wire of a frame with this payload, headers included: what PROTOCOL.md section 4 adds up to. */
uint64_t gp_frame_wire_bytes(uint64_t payload_len, uint32_t segment_bytes);

#endif
