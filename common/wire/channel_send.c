/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending half of a channel: queues by priority and the writer, which
 * keeps at most WRITES_OUTSTANDING records at the connection, and no more bytes ahead of the link than send_ahead.h
 * finds. PROTOCOL.md sections 3-4.
 * Test: tests/unit/test_channel.c, tests/unit/test_channel_life.c
 */
#include "common/wire/channel_impl.h"

#include <string.h>

#include "common/base/little_endian.h"

#define CONTROL_SMALL_BYTES 1024 /* until the owner says what its messages need */
#define CONTROL_RESERVED    4    /* messages; it is seldom that more wait at once, and then they stay in the pool */

static void recycle_msg(struct sender *s, struct control_msg *m)
{
	if (m->cap != s->pooled_bytes) {
		gp_free(m);
		return;
	}
	m->next = s->pool;
	s->pool = m;
}

static struct control_msg *new_msg(size_t cap)
{
	struct control_msg *m = gp_calloc(1, sizeof *m + cap);
	if (m)
		m->cap = cap;
	return m;
}

/* Room for a record of `len` bytes: from the pool where it fits. */
static struct control_msg *take_msg(struct sender *s, size_t len)
{
	struct control_msg *m = s->pool;
	if (len > s->pooled_bytes)
		return new_msg(len);
	if (!m)
		return new_msg(s->pooled_bytes);
	s->pool = m->next;
	return m;
}

void gp_sender_init(struct gp_channel *ch)
{
	struct sender *s = &ch->send;
	s->preface_due = true;
	s->pooled_bytes = CONTROL_SMALL_BYTES;
	s->control_tail = &s->control_head;
	gp_send_ahead_init(&s->ahead);
	for (int k = 0; k < GP_CLASS_COUNT; k++)
		s->queue[k].tail = &s->queue[k].head;
	for (int i = 0; i < WRITES_OUTSTANDING; i++)
		s->slot[i].ch = ch;
}

static void free_msgs(struct control_msg *m)
{
	while (m) {
		struct control_msg *next = m->next;
		gp_free(m);
		m = next;
	}
}

void gp_sender_deinit(struct gp_channel *ch)
{
	free_msgs(ch->send.control_head);
	free_msgs(ch->send.pool);
}

enum gp_status gp_channel_reserve_control(struct gp_channel *ch, uint32_t bytes, struct gp_err *err)
{
	struct sender *s = &ch->send;
	free_msgs(s->pool);
	s->pool = NULL;
	s->pooled_bytes = GP_RECORD_HEADER_BYTES + (size_t)bytes;
	for (int i = 0; i < CONTROL_RESERVED; i++) {
		struct control_msg *m = new_msg(s->pooled_bytes);
		if (!m)
			GP_FAIL(err, GP_NOMEM, "out of memory for control messages of %u bytes", bytes);
		recycle_msg(s, m);
	}
	return GP_OK;
}

bool gp_sender_idle(const struct gp_channel *ch)
{
	const struct sender *s = &ch->send;
	bool frames = false;
	for (int k = 0; k < GP_CLASS_COUNT; k++)
		frames |= s->queue[k].head != NULL;
	return !s->busy && !s->control_head && !frames && !s->preface_due && !s->ping_due && !s->pong_due;
}

static void give_back(struct gp_channel *ch, struct gp_frame *f)
{
	ch->send.backlog[gp_frame_class(f->head.type)]--;
	ch->cbs.sent(ch->arg, f);
}

static void account_sent_frame(struct gp_channel *ch, struct gp_frame *f)
{
	struct gp_kind_account *k = &ch->account.sent.kind[f->head.type];
	f->last_ns = ch->send.last_ns;
	k->frames++;
	k->tensor_bytes += f->tensor_bytes;
	k->padding_bytes += f->padding_bytes;
	k->uncompressed_bytes += f->uncompressed_bytes ? f->uncompressed_bytes : f->tensor_bytes;
	k->payload_bytes += f->head.payload_len;
	k->stage_ns[GP_STAGE_QUEUE] += f->first_ns - f->queued_ns;
	k->stage_ns[GP_STAGE_WIRE] += f->last_ns - f->first_ns;
}

static void account_written(struct gp_channel *ch, struct write_slot *slot, bool ok)
{
	const uint64_t bytes = ok ? slot->w.bytes : 0, all = ch->conn->bytes_written - ch->send.conn_bytes;
	*slot->counter += bytes;
	ch->account.sent.preface_bytes += all - bytes; /* TLS's own messages */
	ch->account.sent.wire_bytes += all;
	ch->send.conn_bytes += all;
	if (ok && slot->frame && slot->last)
		account_sent_frame(ch, slot->frame);
}

/* A link's rate may change at any time. */
static void follow_rate(struct gp_channel *ch)
{
	struct sender *s = &ch->send;
	struct gp_tcp_figures now;
	if (!ch->conn->ops->hold || !ch->conn->ops->figures || !gp_send_ahead_due(&s->ahead, s->last_ns))
		return;
	ch->conn->ops->figures(ch->conn, &now);
	if (gp_send_ahead_look(&s->ahead, s->last_ns, &now))
		ch->conn->ops->hold(ch->conn, s->ahead.bytes);
}

/* gp_conn_write_cb: once per record. */
static void on_written(void *arg, enum gp_status status)
{
	struct write_slot *slot = arg;
	struct gp_channel *ch = slot->ch;
	struct sender *s = &ch->send;
	slot->busy = false;
	s->busy--;
	s->last_ns = s->progress_ns = gp_now_ns();
	account_written(ch, slot, status == GP_OK);
	if (slot->msg) {
		s->control_queued -= slot->msg->len;
		recycle_msg(s, slot->msg);
	}
	if (status != GP_OK)
		s->dead = true;
	else if (slot->frame)
		follow_rate(ch);
	if (slot->frame && slot->last)
		give_back(ch, slot->frame);
	if (ch->over || ch->closing)
		gp_channel_kick(ch);
	gp_sender_pump(ch);
	if (!s->dead && !gp_channel_deaf(ch) && ch->cbs.drained && gp_sender_idle(ch))
		ch->cbs.drained(ch->arg);
}

static void submit(struct write_slot *slot, const uv_buf_t *bufs, unsigned nbufs, uint64_t *counter)
{
	struct gp_channel *ch = slot->ch;
	slot->busy = true;
	slot->counter = counter;
	slot->w.cb = on_written;
	slot->w.arg = slot;
	if (ch->send.busy++ == 0)
		ch->send.progress_ns = gp_now_ns();
	ch->conn->ops->write(ch->conn, &slot->w, bufs, nbufs);
}

/* A record that lies in slot->head whole. */
static void submit_head(struct write_slot *slot, size_t len, uint64_t *counter)
{
	const uv_buf_t buf = uv_buf_init((char *)slot->head, (unsigned)len);
	slot->frame = NULL;
	slot->msg = NULL;
	submit(slot, &buf, 1, counter);
}

static void send_preface(struct write_slot *slot)
{
	slot->ch->send.preface_due = false;
	gp_preface_write(slot->head);
	submit_head(slot, GP_PREFACE_BYTES, &slot->ch->account.sent.preface_bytes);
}

static void send_heartbeat(struct write_slot *slot, enum gp_record_kind kind, const uint8_t body[GP_PING_BYTES])
{
	const struct gp_record_head h = {.kind = (uint8_t)kind, .klass = GP_CLASS_CONTROL, .len = GP_PING_BYTES};
	gp_record_head_write(&h, slot->head);
	memcpy(slot->head + GP_RECORD_HEADER_BYTES, body, GP_PING_BYTES);
	submit_head(slot, GP_RECORD_HEADER_BYTES + GP_PING_BYTES, &slot->ch->account.sent.heartbeat_bytes);
}

static void send_pong(struct write_slot *slot)
{
	slot->ch->send.pong_due = false;
	send_heartbeat(slot, GP_RECORD_PONG, slot->ch->send.pong);
}

static void send_ping(struct write_slot *slot)
{
	struct sender *s = &slot->ch->send;
	uint8_t body[GP_PING_BYTES];
	s->ping_due = false;
	s->ping_ns = gp_now_ns();
	s->ping_value++;
	gp_put_le(body, s->ping_value, sizeof body);
	send_heartbeat(slot, GP_RECORD_PING, body);
}

static void send_control(struct write_slot *slot)
{
	struct sender *s = &slot->ch->send;
	struct control_msg *m = s->control_head;
	s->control_head = m->next;
	if (!m->next)
		s->control_tail = &s->control_head;
	const uv_buf_t buf = uv_buf_init((char *)m->bytes, (unsigned)m->len);
	slot->frame = NULL;
	slot->msg = m;
	submit(slot, &buf, 1, &slot->ch->account.sent.control_bytes);
}

/* Writes the header of the next segment of f into slot->head; returns its payload length. */
static uint32_t segment_head(struct write_slot *slot, const struct gp_frame *f, size_t *head_len)
{
	const uint64_t total = GP_FRAME_HEADER_BYTES + f->head.payload_len;
	const bool first = f->at == 0;
	const uint64_t rest = total - f->at, most = slot->ch->options.segment_bytes;
	const uint32_t len = (uint32_t)(rest < most ? rest : most);
	slot->last = len == rest;
	const struct gp_record_head h = {
		.kind = GP_RECORD_SEGMENT,
		.klass = (uint8_t)gp_frame_class(f->head.type),
		.flags = (uint8_t)((first ? GP_SEGMENT_FIRST : 0) | (slot->last ? GP_SEGMENT_LAST : 0)),
		.len = len,
	};
	gp_record_head_write(&h, slot->head);
	*head_len = GP_RECORD_HEADER_BYTES;
	if (!first)
		return len;
	gp_frame_head_write(&f->head, slot->head + GP_RECORD_HEADER_BYTES);
	*head_len += GP_FRAME_HEADER_BYTES;
	return len - GP_FRAME_HEADER_BYTES;
}

static void pop_frame(struct frame_queue *q)
{
	q->head = q->head->next;
	if (!q->head)
		q->tail = &q->head;
}

static void send_segment(struct write_slot *slot, struct frame_queue *q)
{
	struct gp_channel *ch = slot->ch;
	struct gp_frame *f = q->head;
	size_t head_len;
	const uint64_t payload_at = f->at ? f->at - GP_FRAME_HEADER_BYTES : 0;
	const uint32_t n = segment_head(slot, f, &head_len);
	const uv_buf_t bufs[2] = {
		uv_buf_init((char *)slot->head, (unsigned)head_len),
		uv_buf_init((char *)gp_frame_byte(f, payload_at), n),
	};
	if (f->at == 0)
		f->first_ns = gp_now_ns();
	f->at = GP_FRAME_HEADER_BYTES + payload_at + n;
	slot->frame = f;
	slot->msg = NULL;
	if (slot->last)
		pop_frame(q);
	submit(slot, bufs, n ? 2 : 1, &ch->account.sent.kind[f->head.type].wire_bytes);
}

static struct frame_queue *most_urgent(struct sender *s)
{
	for (int k = GP_CLASS_URGENT; k < GP_CLASS_COUNT; k++)
		if (s->queue[k].head)
			return &s->queue[k];
	return NULL;
}

static bool may_send_segment(const struct gp_channel *ch)
{
	const struct sender *s = &ch->send;
	int under_way = 0;
	for (int i = 0; i < WRITES_OUTSTANDING; i++)
		under_way += s->slot[i].busy && s->slot[i].frame;
	return under_way < gp_send_ahead_writes(s->ahead.bytes, ch->options.segment_bytes);
}

/* Sends the most urgent thing there is. False when there is nothing, or nothing that may go yet. */
static bool send_next(struct gp_channel *ch, struct write_slot *slot)
{
	struct sender *s = &ch->send;
	struct frame_queue *q;
	if (s->preface_due)
		send_preface(slot);
	else if (s->pong_due)
		send_pong(slot);
	else if (s->ping_due)
		send_ping(slot);
	else if (s->control_head)
		send_control(slot);
	else if (!gp_channel_deaf(ch) && (q = most_urgent(s)) && may_send_segment(ch))
		send_segment(slot, q);
	else
		return false;
	return true;
}

void gp_sender_pump(struct gp_channel *ch)
{
	struct sender *s = &ch->send;
	for (int i = 0; i < WRITES_OUTSTANDING; i++) {
		if (s->dead || ch->link_over || ch->shut || ch->conn_closing)
			return;
		if (!s->slot[i].busy && !send_next(ch, &s->slot[i]))
			return;
	}
}

/* The last write outstanding that reads f's bytes, or NULL. */
static struct write_slot *slot_of(struct sender *s, const struct gp_frame *f)
{
	for (int i = 0; i < WRITES_OUTSTANDING; i++)
		if (s->slot[i].busy && s->slot[i].frame == f)
			return &s->slot[i];
	return NULL;
}

void gp_sender_give_back(struct gp_channel *ch)
{
	struct sender *s = &ch->send;
	for (int k = GP_CLASS_URGENT; k < GP_CLASS_COUNT; k++) {
		struct frame_queue *q = &s->queue[k];
		struct gp_frame *f = q->head;
		if (f && slot_of(s, f))
			continue; /* its write ends first, and then this runs again */
		q->head = NULL;   /* an owner that queues again in `sent` waits for the next turn */
		q->tail = &q->head;
		while (f) {
			struct gp_frame *next = f->next;
			give_back(ch, f);
			f = next;
		}
	}
}

void gp_sender_ping(struct gp_channel *ch)
{
	ch->send.ping_due = true;
	gp_sender_pump(ch);
}

/* One answer is kept at most: a flood of pings makes no queue. */
void gp_sender_pong(struct gp_channel *ch, const uint8_t ping[GP_PING_BYTES])
{
	memcpy(ch->send.pong, ping, GP_PING_BYTES);
	ch->send.pong_due = true;
	ch->send.taken = (struct gp_ping_taken){gp_get_le(ping, GP_PING_BYTES), ch->recv.now_ns};
	gp_sender_pump(ch);
}

void gp_sender_take_pong(struct gp_channel *ch, const uint8_t pong[GP_PING_BYTES])
{
	struct sender *s = &ch->send;
	if (!s->ping_ns || gp_get_le(pong, GP_PING_BYTES) != s->ping_value)
		return; /* late or made up: no sample */
	s->answered = (struct gp_ping_answered){s->ping_value, s->ping_ns, gp_now_ns()};
	const uint32_t us =
		(uint32_t)((s->answered.answered_ns - s->ping_ns) / 1000) + 1; /* rounded up: 0 is no sample */
	s->rtt_us = s->rtt_us ? (uint32_t)((7 * (uint64_t)s->rtt_us + us) / 8) : us;
	s->ping_ns = 0;
}

static enum gp_status check_control(struct gp_channel *ch, size_t len, struct gp_err *err)
{
	struct sender *s = &ch->send;
	if (s->dead || ch->link_over || ch->closing)
		GP_FAIL(err, GP_PEER, "%s is gone: nothing can be sent", ch->peer);
	if (len == 0 || len > GP_CONTROL_BYTES_MAX)
		GP_FAIL(err, GP_INTERNAL, "a control message of %zu bytes cannot be sent", len);
	if (s->control_queued + len + GP_RECORD_HEADER_BYTES <= ch->options.control_queue_bytes_max)
		return GP_OK;
	gp_err_set(err, GP_NOMEM, 0, __FILE__, __LINE__, "%s does not read: %llu bytes of control messages wait",
		   ch->peer, (unsigned long long)s->control_queued);
	gp_channel_fail(ch, err);
	return err->code;
}

enum gp_status gp_channel_send_packed(struct gp_channel *ch, size_t bytes, void (*pack)(const void *what, uint8_t *out),
				      const void *what, struct gp_err *err)
{
	struct sender *s = &ch->send;
	GP_TRY(check_control(ch, bytes, err));
	const size_t len = GP_RECORD_HEADER_BYTES + bytes;
	struct control_msg *m = take_msg(s, len);
	if (!m)
		GP_FAIL(err, GP_NOMEM, "out of memory for a control message of %zu bytes", bytes);
	pack(what, m->bytes + GP_RECORD_HEADER_BYTES);
	const struct gp_record_head h = {.kind = GP_RECORD_CONTROL,
					 .klass = GP_CLASS_CONTROL,
					 .len = (uint32_t)bytes,
					 .body_sum = gp_control_checksum(m->bytes + GP_RECORD_HEADER_BYTES, bytes)};
	gp_record_head_write(&h, m->bytes);
	m->len = len;
	m->next = NULL;
	*s->control_tail = m;
	s->control_tail = &m->next;
	s->control_queued += len;
	gp_sender_pump(ch);
	return GP_OK;
}

static void copy_span(const void *what, uint8_t *out)
{
	const struct gp_span *msg = what;
	memcpy(out, msg->data, msg->len);
}

enum gp_status gp_channel_send_control(struct gp_channel *ch, struct gp_span msg, struct gp_err *err)
{
	return gp_channel_send_packed(ch, msg.len, copy_span, &msg, err);
}

void gp_channel_send_frame(struct gp_channel *ch, struct gp_frame *f)
{
	const enum gp_class k = gp_frame_class(f->head.type);
	struct frame_queue *q = &ch->send.queue[k];
	gp_require(f->head.type >= GP_FRAME_ACT_UP && f->head.type < GP_FRAME_TYPE_COUNT);
	f->next = NULL;
	f->at = 0;
	f->queued_ns = gp_now_ns();
	f->first_ns = f->last_ns = 0;
	*q->tail = f;
	q->tail = &f->next;
	ch->send.backlog[k]++;
	if (gp_channel_deaf(ch))
		gp_channel_kick(ch); /* gives it back */
	else
		gp_sender_pump(ch);
}

int gp_channel_backlog(const struct gp_channel *ch, enum gp_class klass)
{
	return ch->send.backlog[klass];
}

uint32_t gp_channel_rtt_us(const struct gp_channel *ch)
{
	return ch->send.rtt_us;
}

void gp_channel_ping(struct gp_channel *ch)
{
	const struct sender *s = &ch->send;
	if (!gp_channel_deaf(ch) && !s->ping_due && !s->ping_ns)
		gp_sender_ping(ch);
}

struct gp_ping_answered gp_channel_ping_answered(const struct gp_channel *ch)
{
	return ch->send.answered;
}

struct gp_ping_taken gp_channel_ping_taken(const struct gp_channel *ch)
{
	return ch->send.taken;
}
