/* SPDX-License-Identifier: Apache-2.0
 *
 * A peer on a memory connection that plays a script: what the fuzz targets of
 * the server's and the client's session share. Each command of the script is a
 * byte (the target says which) and arguments; it writes records, right ones or
 * wrong ones. The byte is divided by the number of commands: the rest says which,
 * the quotient of frames with tensors which tensor. The next command begins when the other side has come to rest, so
 * that a script reaches every state; after the last one the peer hangs up.
 *
 * Needs inline_worker.c. Arguments that the input lacks are 0.
 */
#ifndef SESSION_FUZZ_H
#define SESSION_FUZZ_H

#include <string.h>

#include "common/graph/graph.h"
#include "common/wire/control.h"
#include "common/base/log.h"
#include "tests/fuzz/inline_worker.h"

enum { FUZZ_STREAM_BYTES = 1 << 17, FUZZ_COMMANDS = 64, FUZZ_CALM_TURNS = 3 };

struct fuzz_in {
	const uint8_t *data;
	size_t left;
};

static inline uint8_t fuzz_byte(struct fuzz_in *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->data++;
}

static inline uint32_t fuzz_number(struct fuzz_in *in, int bytes)
{
	uint32_t v = 0;
	for (int i = 0; i < bytes; i++)
		v |= (uint32_t)fuzz_byte(in) << (8 * i);
	return v;
}

static inline struct gp_span fuzz_bytes(struct fuzz_in *in, size_t len)
{
	struct gp_span s = {in->data, len < in->left ? len : in->left};
	in->data += s.len;
	in->left -= s.len;
	return s;
}

struct fuzz_peer {
	uv_idle_t driver; /* on the other side's loop */
	struct gp_conn *conn;
	struct gp_conn_write write;
	bool writing, over, closing;
	bool cut;              /* a command's wish: this connection ends here, another goes on with the script */
	size_t received, seen; /* bytes: in all, and when calm was last looked for */
	int calm, commands;
	struct fuzz_in in;
	uint8_t stream[FUZZ_STREAM_BYTES]; /* what one command writes */
	size_t len;
	void (*command)(struct fuzz_peer *p, uint8_t op); /* the target's: writes into the stream */
};

/* What commands are made of. */

static inline void fuzz_put(struct fuzz_peer *p, const void *bytes, size_t len)
{
	if (len > sizeof p->stream - p->len)
		return;
	memcpy(p->stream + p->len, bytes, len);
	p->len += len;
}

static inline void fuzz_put_preface(struct fuzz_peer *p)
{
	uint8_t bytes[GP_PREFACE_BYTES];
	gp_preface_write(bytes);
	fuzz_put(p, bytes, sizeof bytes);
}

static inline void fuzz_put_record(struct fuzz_peer *p, struct gp_record_head head, struct gp_span body)
{
	uint8_t bytes[GP_RECORD_HEADER_BYTES];
	head.len = (uint32_t)body.len;
	if (head.kind == GP_RECORD_CONTROL)
		head.body_sum = gp_control_checksum(body.data, body.len);
	gp_record_head_write(&head, bytes);
	fuzz_put(p, bytes, sizeof bytes);
	fuzz_put(p, body.data, body.len);
}

static inline void fuzz_put_control_bytes(struct fuzz_peer *p, struct gp_span body)
{
	fuzz_put_record(p, (struct gp_record_head){.kind = GP_RECORD_CONTROL, .klass = GP_CLASS_CONTROL}, body);
}

static inline void fuzz_put_control(struct fuzz_peer *p, const Gpsplit__Control *m)
{
	static uint8_t bytes[FUZZ_STREAM_BYTES];
	gp_require(gpsplit__control__get_packed_size(m) <= sizeof bytes);
	fuzz_put_control_bytes(p, (struct gp_span){bytes, gpsplit__control__pack(m, bytes)});
}

/*
 * A frame in one segment, as `like` has type, tensor, codec and session. From the input: how it is wrong (0: not at all),
 * step (with EVAL its highest bit is CALIBRATE), chunk, what the payload is filled with, and how many of the input's bytes
 * replace its beginning.
 */
static inline void fuzz_put_frame(struct fuzz_peer *p, const struct gp_frame_head *like, size_t len)
{
	static uint8_t bytes[FUZZ_STREAM_BYTES];
	uint8_t *payload = bytes + GP_FRAME_HEADER_BYTES;
	const uint8_t wrong = fuzz_byte(&p->in);
	struct gp_frame_head head = *like;
	head.step = fuzz_byte(&p->in);
	head.chunk = fuzz_byte(&p->in);
	const uint8_t fill = fuzz_byte(&p->in);
	const struct gp_span given = fuzz_bytes(&p->in, fuzz_byte(&p->in));
	if (wrong & 0x01)
		len = given.len;
	memset(payload, fill, len);
	memcpy(payload, given.data ? given.data : bytes, given.len < len ? given.len : len);
	head.payload_len = wrong & 0x02 ? fuzz_number(&p->in, 4) : len;
	head.flags = wrong & 0x04 ? GP_FRAME_FLAG_EVAL : 0;
	if (head.flags && head.step & 0x80) {
		head.step &= 0x7f;
		head.flags |= GP_FRAME_FLAG_CALIBRATE;
	}
	head.checksum = gp_frame_checksum(payload, len) ^ (wrong & 0x08);
	if (wrong & 0x10)
		head.codec = (uint16_t)fuzz_number(&p->in, 2);
	if (wrong & 0x20)
		head.chunk = fuzz_number(&p->in, 4);
	if (wrong & 0x40)
		head.type = (uint8_t)(1 + fuzz_byte(&p->in) % (GP_FRAME_TYPE_COUNT - 1));
	gp_frame_head_write(&head, bytes);
	fuzz_put_record(
		p,
		(struct gp_record_head){.kind = GP_RECORD_SEGMENT,
					.klass = (uint8_t)gp_frame_class(head.type),
					.flags = wrong & 0x80 ? GP_SEGMENT_FIRST : GP_SEGMENT_FIRST | GP_SEGMENT_LAST},
		(struct gp_span){bytes, GP_FRAME_HEADER_BYTES + len});
}

/* A tensor of the body's `inputs`, or of its outputs; where it has no such tensor, as long as its first one. Type and
 * session are in `like`; data travels raw, all else as `codec`. */
static inline void fuzz_put_tensor(struct fuzz_peer *p, const struct gp_graph *body, bool inputs,
				   const struct gp_frame_head *like, uint16_t codec, uint64_t data, size_t samples)
{
	struct gp_frame_head head = *like;
	const int count = inputs ? body->inputs : body->outputs, tensor = head.tensor < count ? head.tensor : 0;
	const struct gp_type *t = inputs ? &body->value[tensor].type : gp_graph_output_type(body, tensor);
	head.codec = t->dtype == GP_F32 && !(inputs && data >> tensor & 1) ? codec : 1;
	const int value = inputs ? tensor : body->output[tensor].value;
	const bool counts = head.length > 0 && body->value[value].sequence && t->dtype == GP_F32;
	fuzz_put_frame(p, &head,
		       samples * (gp_shape_elements(&t->shape) * sizeof(float) + (counts ? sizeof(uint32_t) : 0)));
}

/* How the script runs. */

static inline void fuzz_on_written(void *arg, enum gp_status status)
{
	(void)status;
	((struct fuzz_peer *)arg)->writing = false;
}

static inline void fuzz_on_read(void *arg, const uint8_t *data, size_t len)
{
	(void)data;
	((struct fuzz_peer *)arg)->received += len;
}

static inline void fuzz_on_ended(void *arg, enum gp_status status, const char *why)
{
	(void)status;
	(void)why;
	((struct fuzz_peer *)arg)->over = true;
}

static inline void fuzz_on_conn_closed(void *arg)
{
	((struct fuzz_peer *)arg)->conn = NULL;
}

static inline void fuzz_hang_up(struct fuzz_peer *p)
{
	p->closing = true;
	uv_close((uv_handle_t *)&p->driver, NULL);
	p->conn->ops->close(p->conn, fuzz_on_conn_closed, p);
}

static inline bool fuzz_at_rest(struct fuzz_peer *p)
{
	const bool moved = p->writing || p->seen != p->received || !inline_worker_idle();
	p->seen = p->received;
	p->calm = moved ? 0 : p->calm + 1;
	return p->calm >= FUZZ_CALM_TURNS;
}

static inline void fuzz_drive(uv_idle_t *driver)
{
	struct fuzz_peer *p = driver->data;
	if (!p->over && !fuzz_at_rest(p))
		return;
	if (p->over || p->cut || p->in.left == 0 || p->commands++ == FUZZ_COMMANDS) {
		fuzz_hang_up(p);
		return;
	}
	p->len = 0;
	p->calm = 0;
	p->command(p, fuzz_byte(&p->in));
	if (p->len == 0)
		return;
	const uv_buf_t buf = uv_buf_init((char *)p->stream, (unsigned)p->len);
	p->writing = true;
	p->write.cb = fuzz_on_written;
	p->write.arg = p;
	p->conn->ops->write(p->conn, &p->write, &buf, 1);
}

/* Returns the other end, for the side under test. The first byte of the input is the size of reads. */
static inline struct gp_conn *fuzz_peer_start(struct fuzz_peer *p, uv_loop_t *loop, const uint8_t *data, size_t size,
					      void (*command)(struct fuzz_peer *p, uint8_t op))
{
	static const size_t chunks[4] = {0, 1, 17, 4096};
	struct gp_conn *other;
	struct gp_err err;
	memset(p, 0, offsetof(struct fuzz_peer, stream));
	p->in = (struct fuzz_in){data, size};
	p->command = command;
	gp_require(gp_mem_pair(loop, chunks[fuzz_byte(&p->in) & 3], &p->conn, &other, &err) == GP_OK);
	p->conn->cbs = (struct gp_conn_cbs){.read = fuzz_on_read, .ended = fuzz_on_ended};
	p->conn->arg = p;
	p->conn->ops->read_start(p->conn);
	uv_idle_init(loop, &p->driver);
	p->driver.data = p;
	uv_idle_start(&p->driver, fuzz_drive);
	return other;
}

/* Nothing of what these targets provoke is worth a line. */
static inline void fuzz_quiet(void)
{
	struct gp_err err;
	gp_require(gp_log_configure("all=error", &err) == GP_OK);
}

#endif
