/* SPDX-License-Identifier: Apache-2.0
 *
 * Two channels joined in memory, or one against a peer that is bytes; with
 * --tls, inside TLS. Not a test by itself.
 */
#ifndef GP_TEST_CHANNEL_PAIR_H
#define GP_TEST_CHANNEL_PAIR_H

#include "tests/unit/channel_rig.h"
#include "tests/unit/tls_files.h"

struct pair {
	uv_loop_t loop;
	struct rig_end a, b;
	struct gp_conn *ca, *cb; /* valid while their channel lives */
};

static inline void pair_open_as(struct pair *p, size_t chunk, const struct gp_channel_options *a,
				const struct gp_channel_options *b)
{
	memset(p, 0, sizeof *p);
	uv_loop_init(&p->loop);
	rig_join(&p->loop, chunk, &p->ca, &p->cb);
	rig_open(&p->loop, &p->a, p->ca, a);
	rig_open(&p->loop, &p->b, p->cb, b);
}

static inline void pair_open(struct pair *p, size_t chunk, const struct gp_channel_options *o)
{
	pair_open_as(p, chunk, o, o);
}

static inline void pair_close(struct pair *p)
{
	rig_close_and_wait(&p->loop, &p->a);
	rig_close_and_wait(&p->loop, &p->b);
	rig_finish_loop(&p->loop);
}

static inline void send_text(struct rig_end *e, const char *text)
{
	struct gp_err err;
	const struct gp_span msg = {(const uint8_t *)text, strlen(text)};
	assert_int_equal(gp_channel_send_control(e->ch, msg, &err), GP_OK);
}

/* A channel against a peer that is bytes. */
struct duel {
	uv_loop_t loop;
	struct rig_end e;
	struct rig_raw raw;
	uint8_t head[GP_RECORD_HEADER_BYTES];
};

static inline void duel_open(struct duel *d, const struct gp_channel_options *o)
{
	struct gp_conn *a, *b;
	memset(d, 0, sizeof *d);
	uv_loop_init(&d->loop);
	rig_join(&d->loop, 0, &a, &b);
	rig_open(&d->loop, &d->e, a, o);
	rig_raw_init(&d->raw, b);
	b->ops->read_start(b);
}

static inline void duel_write(struct duel *d, const void *bytes, size_t len)
{
	rig_raw_write(&d->raw, bytes, len);
	while (d->raw.written < d->raw.writes && !d->raw.ended)
		uv_run(&d->loop, UV_RUN_ONCE);
}

static inline void duel_preface(struct duel *d)
{
	static uint8_t preface[GP_PREFACE_BYTES];
	gp_preface_write(preface);
	duel_write(d, preface, sizeof preface);
	assert_int_equal(d->e.opened, 1);
}

static inline void duel_record(struct duel *d, uint8_t kind, uint8_t klass, uint8_t flags, uint32_t len)
{
	const struct gp_record_head h = {kind, klass, flags, len, 0};
	gp_record_head_write(&h, d->head);
	duel_write(d, d->head, sizeof d->head);
}

/* A control record; `damage` is xored into its body's checksum. */
static inline void duel_control(struct duel *d, const uint8_t *body, uint32_t len, uint32_t damage)
{
	const struct gp_record_head h = {GP_RECORD_CONTROL, GP_CLASS_CONTROL, 0, len,
					 gp_control_checksum(body, len) ^ damage};
	gp_record_head_write(&h, d->head);
	duel_write(d, d->head, sizeof d->head);
	duel_write(d, body, len);
}

/* The first segment's record header and a frame header. */
static inline void duel_frame(struct duel *d, enum gp_frame_type type, enum gp_class klass, uint8_t flags, uint32_t len,
			      uint64_t payload_len)
{
	static uint8_t bytes[GP_FRAME_HEADER_BYTES];
	const struct gp_frame_head h = {.type = (uint8_t)type, .payload_len = payload_len};
	duel_record(d, GP_RECORD_SEGMENT, (uint8_t)klass, flags, len);
	gp_frame_head_write(&h, bytes);
	duel_write(d, bytes, sizeof bytes);
}

static inline void duel_expect(struct duel *d, enum gp_status status, const char *text)
{
	rig_run_until(&d->loop, &d->e.ended, 1);
	assert_int_equal(d->e.ended, 1);
	assert_int_equal(d->e.status, status);
	if (!strstr(d->e.err.text, text))
		fail_msg("expected '%s' in '%s'", text, d->e.err.text);
}

static inline void duel_close(struct duel *d)
{
	rig_close_and_wait(&d->loop, &d->e);
	rig_raw_close(&d->loop, &d->raw);
	rig_finish_loop(&d->loop);
	assert_true(d->e.ended <= 1);
}

static inline int use_tls(void **state)
{
	if (tls_files_make(state))
		return -1;
	rig_tls_server = tls_server("server", "ca");
	rig_tls_client = tls_client("client", "ca");
	return 0;
}

static inline int leave_tls(void **state)
{
	gp_tls_free(rig_tls_server);
	gp_tls_free(rig_tls_client);
	return tls_files_remove(state);
}

#endif
