/* SPDX-License-Identifier: Apache-2.0
 *
 * What the channel tests share: an end of a link that records every callback,
 * in the shape of a session. Not a test by itself.
 */
#ifndef GP_TEST_CHANNEL_RIG_H
#define GP_TEST_CHANNEL_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/wire/channel.h"
#include "common/net/conn_tls.h"

#define RIG_EVENTS      256
#define RIG_DEADLINE_NS 600000000000ull /* a test that gets here has failed */

/* Two connections joined in memory; with settings, in TLS: a is the server. One pair at a time. */
static struct gp_tls *rig_tls_server, *rig_tls_client;
static struct gp_conn *rig_inner[2], *rig_outer[2];

static inline void rig_join(uv_loop_t *loop, size_t chunk, struct gp_conn **a, struct gp_conn **b)
{
	struct gp_err err;
	assert_int_equal(gp_mem_pair(loop, chunk, a, b, &err), GP_OK);
	rig_inner[0] = *a;
	rig_inner[1] = *b;
	if (rig_tls_server) {
		assert_int_equal(gp_tls_wrap(loop, *a, rig_tls_server, NULL, a, &err), GP_OK);
		assert_int_equal(gp_tls_wrap(loop, *b, rig_tls_client, "localhost", b, &err), GP_OK);
	}
	rig_outer[0] = *a;
	rig_outer[1] = *b;
}

/* The link dies when `c` of the pair has sent so many bytes. */
static inline void rig_cut_after(const struct gp_conn *c, uint64_t bytes)
{
	gp_mem_cut_after(rig_inner[c == rig_outer[1]], bytes);
}

/* Bytes on the wire of a record: TLS adds 22 to each of its own, of 16 KiB at most. */
static inline uint64_t rig_wire(uint64_t bytes)
{
	return rig_tls_server ? bytes + 22 * ((bytes + 16383) / 16384) : bytes;
}

/* Where an end closes its channel by itself, to test that every place allows it. */
enum rig_place {
	RIG_NOWHERE,
	RIG_IN_OPENED,
	RIG_IN_CONTROL,
	RIG_IN_FRAME_BEGIN,
	RIG_IN_FRAME,
	RIG_IN_SENT,
	RIG_IN_DRAINED,
	RIG_IN_ENDED,
	RIG_PLACES
};

struct rig_end {
	struct gp_channel *ch;
	uint32_t lower_control_to; /* the limit after the first control message; 0: it stays */
	int opened, controls, begins, frames, sent, ended, closed, drained;
	enum gp_status status;
	struct gp_err err;
	uint8_t control[1024]; /* the last one */
	size_t control_len;
	uint8_t events[RIG_EVENTS]; /* types of complete frames, in order */
	uint64_t bulk_at_urgent;    /* bytes of the bulk frame that were here when the urgent one was complete */
	struct gp_frame *bulk;      /* being received */
	bool verify, fail_control, fail_begin, closing;
	enum rig_place close_in;
	bool close_flush;
	int resend; /* so many times, in `sent` */
};

static inline void rig_on_closed(void *arg)
{
	struct rig_end *e = arg;
	struct gp_frame *f;
	while ((f = gp_channel_take_partial(e->ch))) {
		free(f->payload);
		free(f);
	}
	e->closed++;
	e->ch = NULL;
}

static inline void rig_close(struct rig_end *e, bool flush)
{
	e->closing = true;
	gp_channel_close(e->ch, flush, rig_on_closed, e);
}

static inline bool rig_close_here(struct rig_end *e, enum rig_place place)
{
	if (e->close_in != place)
		return false;
	e->close_in = RIG_NOWHERE;
	rig_close(e, e->close_flush);
	return true;
}

static inline void rig_opened(void *arg)
{
	struct rig_end *e = arg;
	e->opened++;
	rig_close_here(e, RIG_IN_OPENED);
}

static inline enum gp_status rig_control(void *arg, struct gp_span msg, struct gp_err *err)
{
	struct rig_end *e = arg;
	e->controls++;
	e->control_len = msg.len;
	memcpy(e->control, msg.data, msg.len < sizeof e->control ? msg.len : sizeof e->control);
	if (e->lower_control_to > 0)
		gp_channel_set_control_max(e->ch, e->lower_control_to);
	rig_close_here(e, RIG_IN_CONTROL);
	if (e->fail_control)
		GP_FAIL(err, GP_INVALID, "the owner does not like this message");
	return GP_OK;
}

static inline enum gp_status rig_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
					     struct gp_err *err)
{
	struct rig_end *e = arg;
	e->begins++;
	if (e->fail_begin)
		GP_FAIL(err, GP_PROTO, "the owner does not want this frame");
	struct gp_frame *f = calloc(1, sizeof *f);
	f->payload = malloc(head->payload_len ? head->payload_len : 1);
	f->cap = head->payload_len;
	f->tensor_bytes = 2 * head->payload_len;
	if (gp_frame_class(head->type) == GP_CLASS_BULK)
		e->bulk = f;
	*out = f;
	rig_close_here(e, RIG_IN_FRAME_BEGIN);
	return GP_OK;
}

static inline enum gp_status rig_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	struct rig_end *e = arg;
	if (e->frames < RIG_EVENTS)
		e->events[e->frames] = f->head.type;
	e->frames++;
	if (f == e->bulk)
		e->bulk = NULL;
	else if (e->bulk && gp_frame_class(f->head.type) == GP_CLASS_URGENT)
		e->bulk_at_urgent = e->bulk->at;
	const enum gp_status status = e->verify ? gp_frame_verify(f, err) : GP_OK;
	free(f->payload);
	free(f);
	rig_close_here(e, RIG_IN_FRAME);
	return status;
}

static inline void rig_sent(void *arg, struct gp_frame *f)
{
	struct rig_end *e = arg;
	e->sent++;
	f->owner = e; /* back */
	if (e->resend > 0 && e->resend--)
		gp_channel_send_frame(e->ch, f);
	rig_close_here(e, RIG_IN_SENT);
}

static inline void rig_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct rig_end *e = arg;
	e->ended++;
	e->status = status;
	e->err = *err;
	rig_close_here(e, RIG_IN_ENDED);
}

static inline void rig_drained(void *arg)
{
	struct rig_end *e = arg;
	e->drained++;
	rig_close_here(e, RIG_IN_DRAINED);
}

static inline void rig_open(uv_loop_t *loop, struct rig_end *e, struct gp_conn *c, const struct gp_channel_options *o)
{
	static const struct gp_channel_cbs cbs = {
		.opened = rig_opened,
		.control = rig_control,
		.frame_begin = rig_frame_begin,
		.frame = rig_frame,
		.sent = rig_sent,
		.ended = rig_ended,
		.drained = rig_drained,
	};
	struct gp_err err;
	e->verify = true;
	assert_int_equal(gp_channel_new(loop, c, o, &cbs, e, &e->ch, &err), GP_OK);
}

/* Turns the loop until *counter reaches `value`. */
static inline void rig_run_until(uv_loop_t *loop, const int *counter, int value)
{
	const uint64_t begin = gp_now_ns();
	while (*counter < value) {
		uv_run(loop, UV_RUN_ONCE);
		if (gp_now_ns() - begin > RIG_DEADLINE_NS)
			fail_msg("nothing happened for ten minutes");
	}
}

static inline void rig_close_and_wait(uv_loop_t *loop, struct rig_end *e)
{
	if (!e->ch)
		return;
	if (!e->closing)
		rig_close(e, false);
	rig_run_until(loop, &e->closed, 1);
}

static inline void rig_finish_loop(uv_loop_t *loop)
{
	uv_run(loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(loop), 0);
}

/* A frame to send: payload bytes follow from its type and length. */
static inline struct gp_frame *rig_frame_new(enum gp_frame_type type, size_t len)
{
	struct gp_frame *f = calloc(1, sizeof *f);
	f->payload = malloc(len ? len : 1);
	f->cap = len;
	for (size_t i = 0; i < len; i++)
		f->payload[i] = (uint8_t)(i * 131 + (i >> 8) + type);
	f->head = (struct gp_frame_head){.type = (uint8_t)type, .session = 7, .step = 3, .payload_len = len};
	f->head.checksum = gp_frame_checksum(f->payload, len);
	f->tensor_bytes = 2 * len;
	return f;
}

static inline void rig_frame_free(struct gp_frame *f)
{
	free(f->payload);
	free(f);
}

/* What every kind, control, heartbeats and preface add up to. */
static inline uint64_t rig_sum(const struct gp_dir_account *d)
{
	uint64_t sum = d->control_bytes + d->heartbeat_bytes + d->preface_bytes;
	for (int k = 0; k < GP_FRAME_TYPE_COUNT; k++)
		sum += d->kind[k].wire_bytes;
	return sum;
}

/* An end that speaks bytes, not records: the hostile peer. */
struct rig_raw {
	struct gp_conn *c;
	struct gp_conn_write w[4];
	int writes, written, ended, closed;
	enum gp_status status;
	uint8_t *in;
	size_t in_len, in_cap;
};

static inline void rig_raw_read(void *arg, const uint8_t *data, size_t len)
{
	struct rig_raw *r = arg;
	if (r->in_len + len > r->in_cap) {
		r->in_cap = 2 * (r->in_len + len);
		r->in = realloc(r->in, r->in_cap);
	}
	memcpy(r->in + r->in_len, data, len);
	r->in_len += len;
}

static inline void rig_raw_ended(void *arg, enum gp_status status, const char *why)
{
	struct rig_raw *r = arg;
	(void)why;
	r->status = status;
	r->ended++;
}

static inline void rig_raw_written(void *arg, enum gp_status status)
{
	struct rig_raw *r = arg;
	(void)status;
	r->written++;
}

static inline void rig_raw_closed(void *arg)
{
	struct rig_raw *r = arg;
	r->closed++;
	free(r->in);
	r->in = NULL;
}

static inline void rig_raw_init(struct rig_raw *r, struct gp_conn *c)
{
	r->c = c;
	c->cbs = (struct gp_conn_cbs){.read = rig_raw_read, .ended = rig_raw_ended};
	c->arg = r;
}

static inline void rig_raw_write(struct rig_raw *r, const void *bytes, size_t len)
{
	struct gp_conn_write *w = &r->w[r->writes++ % 4];
	const uv_buf_t buf = uv_buf_init((char *)bytes, (unsigned)len);
	w->cb = rig_raw_written;
	w->arg = r;
	r->c->ops->write(r->c, w, &buf, 1);
}

static inline void rig_raw_close(uv_loop_t *loop, struct rig_raw *r)
{
	r->c->ops->close(r->c, rig_raw_closed, r);
	rig_run_until(loop, &r->closed, 1);
}

#endif
