/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of record headers and frame headers, both ways. No I/O and no
 * state: what may follow what is channel_recv.c. Byte tables: proto/PROTOCOL.md
 * sections 3-4. Test: tests/unit/test_frame.c; fuzz: tests/fuzz/fuzz_frame.c
 */
#include "common/wire/frame.h"

#include <string.h>
#include <xxhash.h>

#include "common/base/little_endian.h"

/* PROTOCOL.md section 3: kind, class, flags, reserved, length u32, XXH32 of the body, XXH32 of those 12 bytes. */
void gp_record_head_write(const struct gp_record_head *h, uint8_t out[GP_RECORD_HEADER_BYTES])
{
	out[0] = h->kind;
	out[1] = h->klass;
	out[2] = h->flags;
	out[3] = 0;
	gp_put_le(out + 4, h->len, 4);
	gp_put_le(out + 8, h->body_sum, 4);
	gp_put_le(out + 12, XXH32(out, 12, 0), 4);
}

static enum gp_status check_segment(const struct gp_record_head *h, struct gp_err *err)
{
	if (h->klass < GP_CLASS_URGENT || h->klass >= GP_CLASS_COUNT)
		GP_FAIL(err, GP_PROTO, "sent a segment of unknown class %u", h->klass);
	if (h->flags & ~(GP_SEGMENT_FIRST | GP_SEGMENT_LAST))
		GP_FAIL(err, GP_PROTO, "sent a segment with unknown flags 0x%02x", h->flags);
	const uint32_t least = h->flags & GP_SEGMENT_FIRST ? GP_FRAME_HEADER_BYTES : 1;
	if (h->len < least || h->len > GP_SEGMENT_BYTES_MAX)
		GP_FAIL(err, GP_PROTO, "sent a segment of %u bytes, allowed are %u to %u", h->len, least,
			GP_SEGMENT_BYTES_MAX);
	return GP_OK;
}

static enum gp_status check_record(const struct gp_record_head *h, struct gp_err *err)
{
	if (h->kind == GP_RECORD_SEGMENT)
		return check_segment(h, err);
	if (h->kind < GP_RECORD_CONTROL || h->kind > GP_RECORD_PONG)
		GP_FAIL(err, GP_PROTO, "sent a record of unknown kind %u", h->kind);
	if (h->klass != GP_CLASS_CONTROL || h->flags)
		GP_FAIL(err, GP_PROTO, "sent a record of kind %u with class %u and flags 0x%02x, both must be 0",
			h->kind, h->klass, h->flags);
	if (h->kind != GP_RECORD_CONTROL && h->len != GP_PING_BYTES)
		GP_FAIL(err, GP_PROTO, "sent a heartbeat of %u bytes instead of %d", h->len, GP_PING_BYTES);
	if (h->len == 0 || h->len > GP_CONTROL_BYTES_MAX)
		GP_FAIL(err, GP_PROTO, "sent a control message of %u bytes, allowed are 1 to %u", h->len,
			GP_CONTROL_BYTES_MAX);
	return GP_OK;
}

enum gp_status gp_record_head_read(const uint8_t in[GP_RECORD_HEADER_BYTES], struct gp_record_head *out,
				   struct gp_err *err)
{
	if (gp_get_le(in + 12, 4) != XXH32(in, 12, 0))
		GP_FAIL(err, GP_DAMAGED, "sent a record header whose checksum is wrong");
	if (in[3] || (in[0] != GP_RECORD_CONTROL && !gp_all_zero(in + 8, 4)))
		GP_FAIL(err, GP_PROTO, "sent a record header with reserved bytes set");
	const struct gp_record_head h = {in[0], in[1], in[2], (uint32_t)gp_get_le(in + 4, 4),
					 (uint32_t)gp_get_le(in + 8, 4)};
	GP_TRY(check_record(&h, err));
	*out = h;
	return GP_OK;
}

/* PROTOCOL.md section 4.1. */
void gp_frame_head_write(const struct gp_frame_head *h, uint8_t out[GP_FRAME_HEADER_BYTES])
{
	memset(out, 0, GP_FRAME_HEADER_BYTES);
	out[0] = h->type;
	out[1] = h->flags;
	gp_put_le(out + 2, h->codec, 2);
	gp_put_le(out + 4, h->chunk, 4);
	gp_put_le(out + 8, h->session, 8);
	gp_put_le(out + 16, h->step, 8);
	gp_put_le(out + 24, h->payload_len, 8);
	gp_put_le(out + 32, h->checksum, 8);
	gp_put_le(out + 40, h->tensor, 2);
	gp_put_le(out + 44, h->length, 4);
	gp_put_le(out + 56, XXH3_64bits(out, 56), 8);
}

static enum gp_status check_frame(const struct gp_frame_head *h, struct gp_err *err)
{
	if (h->type < GP_FRAME_ACT_UP || h->type >= GP_FRAME_TYPE_COUNT)
		GP_FAIL(err, GP_PROTO, "sent a frame of unknown type %u", h->type);
	const bool act = h->type == GP_FRAME_ACT_UP || h->type == GP_FRAME_ACT_DOWN;
	const bool tensor = h->type <= GP_FRAME_GRAD_DOWN;
	const bool eval = h->flags == GP_FRAME_FLAG_EVAL || h->flags == (GP_FRAME_FLAG_EVAL | GP_FRAME_FLAG_CALIBRATE);
	if (h->flags && (!eval || !act))
		GP_FAIL(err, GP_PROTO, "sent a %s frame with flags 0x%02x", gp_frame_type_name(h->type), h->flags);
	if (h->tensor && !tensor)
		GP_FAIL(err, GP_PROTO, "sent a %s frame of tensor %u", gp_frame_type_name(h->type), h->tensor);
	if (h->length && !tensor)
		GP_FAIL(err, GP_PROTO, "sent a %s frame of %u positions", gp_frame_type_name(h->type), h->length);
	return GP_OK;
}

enum gp_status gp_frame_head_read(const uint8_t in[GP_FRAME_HEADER_BYTES], struct gp_frame_head *out,
				  struct gp_err *err)
{
	if (gp_get_le(in + 56, 8) != XXH3_64bits(in, 56))
		GP_FAIL(err, GP_DAMAGED, "sent a frame header whose checksum is wrong");
	if (!gp_all_zero(in + 42, 2) || !gp_all_zero(in + 48, 8))
		GP_FAIL(err, GP_PROTO, "sent a frame header with reserved bytes set");
	const struct gp_frame_head h = {
		.type = in[0],
		.flags = in[1],
		.codec = (uint16_t)gp_get_le(in + 2, 2),
		.chunk = (uint32_t)gp_get_le(in + 4, 4),
		.session = gp_get_le(in + 8, 8),
		.step = gp_get_le(in + 16, 8),
		.payload_len = gp_get_le(in + 24, 8),
		.checksum = gp_get_le(in + 32, 8),
		.tensor = (uint16_t)gp_get_le(in + 40, 2),
		.length = (uint32_t)gp_get_le(in + 44, 4),
	};
	GP_TRY(check_frame(&h, err));
	*out = h;
	return GP_OK;
}

enum gp_class gp_frame_class(enum gp_frame_type type)
{
	switch (type) {
	case GP_FRAME_ACT_DOWN:
	case GP_FRAME_GRAD_UP:
		return GP_CLASS_URGENT;
	case GP_FRAME_ACT_UP:
	case GP_FRAME_GRAD_DOWN:
	case GP_FRAME_PROBE_UP:
	case GP_FRAME_PROBE_DOWN:
		return GP_CLASS_BULK;
	default:
		return GP_CLASS_PARAM;
	}
}

const char *gp_frame_type_name(enum gp_frame_type type)
{
	static const char *const names[GP_FRAME_TYPE_COUNT] = {
		[GP_FRAME_ACT_UP] = "act_up",     [GP_FRAME_ACT_DOWN] = "act_down",
		[GP_FRAME_GRAD_UP] = "grad_up",   [GP_FRAME_GRAD_DOWN] = "grad_down",
		[GP_FRAME_PARAM_UP] = "param_up", [GP_FRAME_PARAM_DOWN] = "param_down",
		[GP_FRAME_PROBE_UP] = "probe_up", [GP_FRAME_PROBE_DOWN] = "probe_down",
	};
	return (unsigned)type < GP_FRAME_TYPE_COUNT && names[type] ? names[type] : "?";
}

uint32_t gp_control_checksum(const uint8_t *msg, size_t len)
{
	return XXH32(msg, len, 0);
}

uint64_t gp_frame_checksum(const uint8_t *payload, size_t len)
{
	return XXH3_64bits(payload, len);
}

uint64_t gp_frame_wire_bytes(uint64_t payload_len, uint32_t segment_bytes)
{
	const uint64_t bytes = GP_FRAME_HEADER_BYTES + payload_len;
	return bytes + GP_RECORD_HEADER_BYTES * ((bytes + segment_bytes - 1) / segment_bytes);
}
