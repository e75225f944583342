/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: whatever bytes a peer sends, in whatever pieces, and wherever the
 * owner closes, the channel ends at most once, gives every frame back exactly
 * once and accounts for every byte of whole records (common/wire/channel.h).
 *
 * Input: byte 0: bit 0 a right preface goes first, bit 1 checksums of headers
 * are made right, bits 2-3 the size of reads; byte 1: after how many callbacks
 * the owner closes (0: never), bit 7: with flush; then the stream.
 */
#include <string.h>
#include <xxhash.h>

#include "common/wire/channel.h"

#define FRAME_BYTES_MAX (1u << 16)
#define FRAMES_SENT     3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct owner {
	struct gp_channel *ch;
	struct gp_frame in[GP_CLASS_COUNT];
	bool in_use[GP_CLASS_COUNT]; /* with the channel */
	uint8_t payload[GP_CLASS_COUNT][FRAME_BYTES_MAX];
	struct gp_frame out[FRAMES_SENT];
	int sent, ended, closed, until_close;
	bool flush, closing;
};

static struct owner owner;
static uint8_t stream[1 << 20];

static void on_closed(void *arg)
{
	struct owner *o = arg;
	struct gp_frame *f;
	while ((f = gp_channel_take_partial(o->ch)))
		o->in_use[f - o->in] = false;
	o->closed++;
}

static void maybe_close(struct owner *o)
{
	gp_require(!o->closing && !o->ended);
	if (o->until_close == 0 || --o->until_close > 0)
		return;
	o->closing = true;
	gp_channel_close(o->ch, o->flush, on_closed, o);
}

static void on_opened(void *arg)
{
	maybe_close(arg);
}

static enum gp_status on_control(void *arg, struct gp_span msg, struct gp_err *err)
{
	struct owner *o = arg;
	uint8_t sum = 0;
	for (size_t i = 0; i < msg.len; i++) /* every byte is readable */
		sum = (uint8_t)(sum + msg.data[i]);
	if (sum == 0)
		GP_FAIL(err, GP_INVALID, "refused by the owner");
	(void)!gp_channel_send_control(o->ch, (struct gp_span){msg.data, msg.len < 16 ? msg.len : 16}, err);
	maybe_close(o);
	return GP_OK;
}

static enum gp_status on_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				     struct gp_err *err)
{
	struct owner *o = arg;
	const enum gp_class k = gp_frame_class(head->type);
	gp_require(head->payload_len <= FRAME_BYTES_MAX && !o->in_use[k]);
	if (head->chunk == UINT32_MAX)
		GP_FAIL(err, GP_PROTO, "refused by the owner");
	o->in_use[k] = true;
	o->in[k] = (struct gp_frame){.payload = o->payload[k], .cap = (size_t)head->payload_len};
	*out = &o->in[k];
	maybe_close(o);
	return GP_OK;
}

static enum gp_status on_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	struct owner *o = arg;
	gp_require(o->in_use[f - o->in] && f->at == f->head.payload_len);
	o->in_use[f - o->in] = false;
	(void)!gp_frame_verify(f, err);
	maybe_close(o);
	return GP_OK;
}

static void on_sent(void *arg, struct gp_frame *f)
{
	struct owner *o = arg;
	gp_require(f >= o->out && f < o->out + FRAMES_SENT && !f->owner);
	f->owner = o;
	o->sent++;
}

static void on_ended(void *arg, enum gp_status status, const struct gp_err *err)
{
	struct owner *o = arg;
	(void)status;
	gp_require(!o->closing && o->ended == 0 && err->text[0]);
	o->ended++;
}

/* The peer that only writes. */
static int raw_written;

static void raw_read(void *arg, const uint8_t *data, size_t len)
{
	(void)arg;
	(void)data;
	(void)len;
}

static void raw_ended(void *arg, enum gp_status status, const char *why)
{
	(void)arg;
	(void)status;
	(void)why;
	raw_written = 1;
}

static void raw_write_done(void *arg, enum gp_status status)
{
	(void)arg;
	(void)status;
	raw_written = 1;
}

static void put_le(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static size_t record_len(const uint8_t *head)
{
	return head[4] | (size_t)head[5] << 8 | (size_t)head[6] << 16 | (size_t)head[7] << 24;
}

/* Makes the checksums of the headers right, as far as the stream can be followed. */
static void repair(uint8_t *p, size_t n)
{
	while (n >= GP_RECORD_HEADER_BYTES) {
		size_t len = record_len(p);
		put_le(p + 12, XXH32(p, 12, 0), 4);
		const bool first = p[0] == GP_RECORD_SEGMENT && p[2] & GP_SEGMENT_FIRST;
		p += GP_RECORD_HEADER_BYTES;
		n -= GP_RECORD_HEADER_BYTES;
		if (first && n >= GP_FRAME_HEADER_BYTES)
			put_le(p + 56, XXH3_64bits(p, 56), 8);
		len = len < n ? len : n;
		p += len;
		n -= len;
	}
}

static size_t make_stream(uint8_t mode, const uint8_t *data, size_t size)
{
	size_t at = 0;
	if (mode & 0x01) {
		gp_preface_write(stream);
		at = GP_PREFACE_BYTES;
	}
	size = size < sizeof stream - at ? size : sizeof stream - at;
	memcpy(stream + at, data, size);
	if (mode & 0x02)
		repair(stream + at, size);
	return at + size;
}

static uint64_t sum_of(const struct gp_dir_account *d)
{
	uint64_t sum = d->control_bytes + d->heartbeat_bytes + d->preface_bytes;
	for (int k = 0; k < GP_FRAME_TYPE_COUNT; k++)
		sum += d->kind[k].wire_bytes;
	return sum;
}

static void send_frames(struct owner *o)
{
	static uint8_t payload[3 * GP_SEGMENT_BYTES_MIN];
	static const uint8_t types[FRAMES_SENT] = {GP_FRAME_ACT_UP, GP_FRAME_GRAD_UP, GP_FRAME_PARAM_UP};
	for (int i = 0; i < FRAMES_SENT; i++) {
		o->out[i] = (struct gp_frame){.head = {.type = types[i], .payload_len = sizeof payload >> i},
					      .payload = payload};
		gp_channel_send_frame(o->ch, &o->out[i]);
	}
}

static void open_owner(uv_loop_t *loop, struct gp_conn *c)
{
	static const struct gp_channel_cbs cbs = {
		.opened = on_opened,
		.control = on_control,
		.frame_begin = on_frame_begin,
		.frame = on_frame,
		.sent = on_sent,
		.ended = on_ended,
	};
	const struct gp_channel_options options = {
		.segment_bytes = GP_SEGMENT_BYTES_MIN,
		.frame_bytes_max = FRAME_BYTES_MAX,
		.control_bytes_max = 1 << 16,
		.control_queue_bytes_max = 4096,
	};
	struct gp_err err;
	gp_require(gp_channel_new(loop, c, &options, &cbs, &owner, &owner.ch, &err) == GP_OK);
}

static void reset_owner(const uint8_t *data)
{
	const int until_close = data[1] & 0x7f;
	memset(owner.in_use, 0, sizeof owner.in_use);
	owner.sent = owner.ended = owner.closed = 0;
	owner.closing = false;
	owner.until_close = until_close;
	owner.flush = data[1] & 0x80;
	raw_written = 0;
}

static void play(uv_loop_t *loop, struct gp_conn *raw, size_t len)
{
	static struct gp_conn_write w;
	const uv_buf_t buf = uv_buf_init((char *)stream, (unsigned)len);
	raw->cbs = (struct gp_conn_cbs){.read = raw_read, .ended = raw_ended};
	raw->ops->read_start(raw);
	w.cb = raw_write_done;
	raw->ops->write(raw, &w, &buf, 1);
	send_frames(&owner);
	while (!raw_written)
		uv_run(loop, UV_RUN_NOWAIT);
	const struct gp_dir_account *d = owner.closed ? NULL : &gp_channel_account(owner.ch)->received;
	gp_require(!d || sum_of(d) <= d->wire_bytes);
	if (!owner.closing)
		gp_channel_close(owner.ch, owner.flush, on_closed, &owner);
	raw->ops->close(raw, NULL, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const size_t chunks[4] = {0, 1, 17, 4096};
	static uv_loop_t loop;
	static bool ready;
	struct gp_conn *a, *b;
	struct gp_err err;
	if (size < 2)
		return 0;
	if (!ready)
		uv_loop_init(&loop);
	ready = true;
	reset_owner(data);
	gp_require(gp_mem_pair(&loop, chunks[data[0] >> 2 & 3], &a, &b, &err) == GP_OK);
	open_owner(&loop, a);
	play(&loop, b, make_stream(data[0], data + 2, size - 2));
	uv_run(&loop, UV_RUN_DEFAULT);
	gp_require(owner.closed == 1 && owner.ended <= 1 && owner.sent == FRAMES_SENT);
	for (int k = 0; k < GP_CLASS_COUNT; k++)
		gp_require(!owner.in_use[k]);
	return 0;
}
