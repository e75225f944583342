/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving half of a channel: a parser that takes any byte string in any
 * pieces. Lengths are checked before anything is allocated, buffered or asked
 * for; nothing here trusts the peer. PROTOCOL.md sections 2-4.
 * Test: tests/unit/test_channel.c; fuzz: tests/fuzz/fuzz_channel.c
 */
#include "common/wire/channel_impl.h"

#include <string.h>

#define CONTROL_BYTES_AT_START 4096u
#define HINT_NS_MAX            500000000ull

static const char *const class_names[GP_CLASS_COUNT] = {"control", "urgent", "bulk", "parameter"};

void gp_receiver_init(struct gp_channel *ch)
{
	struct receiver *r = &ch->recv;
	r->control_max = ch->options.control_bytes_max;
	r->frame_max = ch->options.frame_bytes_max;
	r->counter = &ch->account.received.preface_bytes;
}

void gp_receiver_deinit(struct gp_channel *ch)
{
	gp_free(ch->recv.control);
	gp_free(ch->recv.kept);
}

bool gp_receiver_between(const struct gp_channel *ch)
{
	const struct receiver *r = &ch->recv;
	return r->state == RECV_RECORD_HEAD && r->have == 0 && r->partials == 0;
}

static void count(struct receiver *r, uint64_t *counter, uint64_t bytes)
{
	*counter += bytes;
	r->counter = counter;
}

/* Bytes of a frame under way. Those that the kernel gave together with its first took no time that this end knows. */
static void count_frame(struct gp_channel *ch, struct gp_frame *f, uint64_t bytes)
{
	count(&ch->recv, &ch->account.received.kind[f->head.type].wire_bytes, bytes);
	if (ch->recv.now_ns > f->first_ns)
		f->timed_bytes += bytes;
}

/* Collects `want` bytes of a header in r->small. True when they are there. */
static bool collect(struct receiver *r, struct gp_span *in, size_t want)
{
	size_t n = want - r->have;
	if (n > in->len)
		n = in->len;
	memcpy(r->small + r->have, in->data, n);
	r->have += n;
	in->data += n;
	in->len -= n;
	if (r->have < want)
		return false;
	r->have = 0;
	return true;
}

static enum gp_status take_preface(struct gp_channel *ch, struct gp_span *in, struct gp_err *err)
{
	uint16_t version;
	if (!collect(&ch->recv, in, GP_PREFACE_BYTES))
		return GP_OK;
	count(&ch->recv, &ch->account.received.preface_bytes, GP_PREFACE_BYTES);
	GP_TRY(gp_preface_read(ch->recv.small, &version, err));
	ch->recv.state = RECV_RECORD_HEAD;
	ch->cbs.opened(ch->arg);
	return GP_OK;
}

/* The buffer grows with what really arrived, not with what the header claims. */
static enum gp_status grow_control(struct receiver *r, size_t need, struct gp_err *err)
{
	if (need <= r->control_cap)
		return GP_OK;
	size_t cap = r->control_cap ? r->control_cap : CONTROL_BYTES_AT_START;
	while (cap < need)
		cap *= 2;
	if (cap > r->record.len && r->record.len > CONTROL_BYTES_AT_START)
		cap = r->record.len;
	void *p = gp_realloc(r->control, cap, 1);
	if (!p)
		GP_FAIL(err, GP_NOMEM, "out of memory for a control message of %u bytes", r->record.len);
	r->control = p;
	r->control_cap = cap;
	return GP_OK;
}

/* After a message that was longer than any may be now. */
static void shrink_control(struct receiver *r)
{
	if (r->control_cap <= CONTROL_BYTES_AT_START || r->control_cap <= r->control_max)
		return;
	void *p = gp_realloc(r->control, CONTROL_BYTES_AT_START, 1);
	if (!p)
		return;
	r->control = p;
	r->control_cap = CONTROL_BYTES_AT_START;
}

static enum gp_status deliver_control(struct gp_channel *ch, const uint8_t *data, struct gp_err *err)
{
	struct receiver *r = &ch->recv;
	r->state = RECV_RECORD_HEAD;
	r->have = 0;
	if (gp_control_checksum(data, r->record.len) != r->record.body_sum)
		GP_FAIL(err, GP_DAMAGED, "sent a control message whose checksum is wrong");
	const enum gp_status status = ch->cbs.control(ch->arg, (struct gp_span){data, r->record.len}, err);
	shrink_control(r);
	return status;
}

static enum gp_status take_control(struct gp_channel *ch, struct gp_span *in, struct gp_err *err)
{
	struct receiver *r = &ch->recv;
	size_t n = r->record.len - r->have;
	const bool whole = r->have == 0 && in->len >= n; /* the usual case: no copy */
	if (n > in->len)
		n = in->len;
	const uint8_t *data = in->data;
	in->data += n;
	in->len -= n;
	count(r, &ch->account.received.control_bytes, n);
	if (whole)
		return deliver_control(ch, data, err);
	GP_TRY(grow_control(r, r->have + n, err));
	memcpy(r->control + r->have, data, n);
	r->have += n;
	return r->have == r->record.len ? deliver_control(ch, r->control, err) : GP_OK;
}

static void take_heartbeat(struct gp_channel *ch, struct gp_span *in)
{
	struct receiver *r = &ch->recv;
	if (!collect(r, in, GP_PING_BYTES))
		return;
	count(r, &ch->account.received.heartbeat_bytes, GP_PING_BYTES);
	r->state = RECV_RECORD_HEAD;
	if (r->record.kind == GP_RECORD_PING)
		gp_sender_pong(ch, r->small);
	else
		gp_sender_take_pong(ch, r->small);
}

/* Does a segment with `bytes` of payload fit frame f, and does it say LAST just when it is? */
static enum gp_status check_extent(const struct receiver *r, uint64_t done, uint64_t bytes, uint64_t payload_len,
				   struct gp_err *err)
{
	const char *name = class_names[r->record.klass];
	const bool last = r->record.flags & GP_SEGMENT_LAST;
	if (bytes > payload_len - done)
		GP_FAIL(err, GP_PROTO, "sent a %s segment past the %llu bytes of its frame", name,
			(unsigned long long)payload_len);
	if (last && bytes < payload_len - done)
		GP_FAIL(err, GP_PROTO, "ended a %s frame %llu bytes too early", name,
			(unsigned long long)(payload_len - done - bytes));
	if (!last && bytes == payload_len - done)
		GP_FAIL(err, GP_PROTO, "sent a whole %s frame without its last-segment flag", name);
	return GP_OK;
}

/* PROTOCOL.md section 4.2: at most one frame per class is under way. */
static enum gp_status begin_segment(struct gp_channel *ch, struct gp_err *err)
{
	struct receiver *r = &ch->recv;
	struct gp_frame *f = r->partial[r->record.klass];
	const char *name = class_names[r->record.klass];
	r->left = r->record.len;
	if (r->record.flags & GP_SEGMENT_FIRST) {
		if (f)
			GP_FAIL(err, GP_PROTO, "began a %s frame while another is under way", name);
		r->state = RECV_FRAME_HEAD;
		return GP_OK;
	}
	if (!f)
		GP_FAIL(err, GP_PROTO, "sent a %s segment that belongs to no frame", name);
	GP_TRY(check_extent(r, f->at, r->left, f->head.payload_len, err));
	count_frame(ch, f, GP_RECORD_HEADER_BYTES);
	r->state = RECV_PAYLOAD;
	return GP_OK;
}

static enum gp_status take_record_head(struct gp_channel *ch, struct gp_span *in, struct gp_err *err)
{
	struct receiver *r = &ch->recv;
	if (!collect(r, in, GP_RECORD_HEADER_BYTES))
		return GP_OK;
	GP_TRY(gp_record_head_read(r->small, &r->record, err));
	switch (r->record.kind) {
	case GP_RECORD_SEGMENT:
		return begin_segment(ch, err);
	case GP_RECORD_CONTROL:
		if (r->record.len > r->control_max)
			GP_FAIL(err, GP_PROTO, "sent a control message of %u bytes, the limit is %u", r->record.len,
				r->control_max);
		shrink_control(r);
		if (ch->cbs.control_begin)
			GP_TRY(ch->cbs.control_begin(ch->arg, r->record.len, err));
		count(r, &ch->account.received.control_bytes, GP_RECORD_HEADER_BYTES);
		r->state = RECV_CONTROL;
		return GP_OK;
	default:
		count(r, &ch->account.received.heartbeat_bytes, GP_RECORD_HEADER_BYTES);
		r->state = RECV_HEARTBEAT;
		return GP_OK;
	}
}

static enum gp_status complete_frame(struct gp_channel *ch, struct gp_err *err)
{
	struct receiver *r = &ch->recv;
	struct gp_frame *f = r->partial[r->record.klass];
	struct gp_kind_account *k = &ch->account.received.kind[f->head.type];
	r->partial[r->record.klass] = NULL;
	r->partials--;
	f->last_ns = r->now_ns;
	k->frames++;
	k->tensor_bytes += f->tensor_bytes;
	k->uncompressed_bytes += f->uncompressed_bytes ? f->uncompressed_bytes : f->tensor_bytes;
	k->payload_bytes += f->head.payload_len;
	k->stage_ns[GP_STAGE_WIRE] += f->last_ns - f->first_ns;
	k->timed_bytes += f->timed_bytes;
	return ch->cbs.frame(ch->arg, f, err);
}

static enum gp_status end_of_segment(struct gp_channel *ch, struct gp_err *err)
{
	ch->recv.state = RECV_RECORD_HEAD;
	return ch->recv.record.flags & GP_SEGMENT_LAST ? complete_frame(ch, err) : GP_OK;
}

/* Asks the owner for a frame, after every check that the channel can make itself. */
static enum gp_status begin_frame(struct gp_channel *ch, const struct gp_frame_head *head, struct gp_err *err)
{
	struct receiver *r = &ch->recv;
	struct gp_frame *f = NULL;
	if (gp_frame_class(head->type) != r->record.klass)
		GP_FAIL(err, GP_PROTO, "sent a %s frame in class %s", gp_frame_type_name(head->type),
			class_names[r->record.klass]);
	if (head->payload_len > r->frame_max)
		GP_FAIL(err, GP_PROTO, "sent a %s frame of %llu bytes, the limit is %llu",
			gp_frame_type_name(head->type), (unsigned long long)head->payload_len,
			(unsigned long long)r->frame_max);
	GP_TRY(check_extent(r, 0, r->left, head->payload_len, err));
	GP_TRY(ch->cbs.frame_begin(ch->arg, head, &f, err));
	const uint64_t need = f && f->wrap ? f->wrap + (uint64_t)GP_SEGMENT_BYTES_MAX : head->payload_len;
	if (!f || f->cap < need)
		GP_FAIL(err, GP_INTERNAL, "no buffer for a %s frame of %llu bytes", gp_frame_type_name(head->type),
			(unsigned long long)head->payload_len);
	f->head = *head;
	f->next = NULL;
	f->at = f->timed_bytes = 0;
	f->first_ns = r->now_ns;
	f->queued_ns = f->last_ns = 0;
	r->partial[r->record.klass] = f;
	r->partials++;
	return GP_OK;
}

static enum gp_status take_frame_head(struct gp_channel *ch, struct gp_span *in, struct gp_err *err)
{
	struct receiver *r = &ch->recv;
	struct gp_frame_head head;
	if (!collect(r, in, GP_FRAME_HEADER_BYTES))
		return GP_OK;
	GP_TRY(gp_frame_head_read(r->small, &head, err));
	r->left -= GP_FRAME_HEADER_BYTES;
	const uint64_t bytes = GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES;
	count(r, &ch->account.received.kind[head.type].wire_bytes, bytes);
	GP_TRY(begin_frame(ch, &head, err));
	r->state = RECV_PAYLOAD;
	return r->left || gp_channel_deaf(ch) ? GP_OK : end_of_segment(ch, err);
}

static enum gp_status take_payload(struct gp_channel *ch, struct gp_span *in, struct gp_err *err)
{
	struct receiver *r = &ch->recv;
	struct gp_frame *f = r->partial[r->record.klass];
	const uint32_t n = r->left < in->len ? r->left : (uint32_t)in->len;
	memcpy(gp_frame_byte(f, f->at), in->data, n);
	f->at += n;
	r->left -= n;
	in->data += n;
	in->len -= n;
	count_frame(ch, f, n);
	return r->left ? GP_OK : end_of_segment(ch, err);
}

static enum gp_status take(struct gp_channel *ch, struct gp_span *in, struct gp_err *err)
{
	switch (ch->recv.state) {
	case RECV_PREFACE:
		return take_preface(ch, in, err);
	case RECV_RECORD_HEAD:
		return take_record_head(ch, in, err);
	case RECV_CONTROL:
		return take_control(ch, in, err);
	case RECV_HEARTBEAT:
		take_heartbeat(ch, in);
		return GP_OK;
	case RECV_FRAME_HEAD:
		return take_frame_head(ch, in, err);
	case RECV_PAYLOAD:
		return take_payload(ch, in, err);
	}
	GP_FAIL(err, GP_INTERNAL, "receiver in state %d", (int)ch->recv.state);
}

/* Bytes until something can be done: the rest of a header, or of a message or segment and the header behind it. */
static uint32_t bytes_needed(const struct receiver *r)
{
	const uint32_t have = (uint32_t)r->have;
	switch (r->state) {
	case RECV_PREFACE:
		return GP_PREFACE_BYTES - have;
	case RECV_RECORD_HEAD:
		return GP_RECORD_HEADER_BYTES - have;
	case RECV_CONTROL:
		return r->record.len - have;
	case RECV_HEARTBEAT:
		return GP_PING_BYTES - have;
	case RECV_FRAME_HEAD:
		return GP_FRAME_HEADER_BYTES - have;
	case RECV_PAYLOAD:
		return r->record.flags & GP_SEGMENT_LAST ? r->left : r->left + GP_RECORD_HEADER_BYTES;
	}
	return 1;
}

static void hint(struct gp_channel *ch, uint32_t bytes)
{
	if (ch->conn && !ch->conn_closing && ch->conn->ops->read_hint)
		ch->conn->ops->read_hint(ch->conn, bytes);
}

/* Called from the timer: on a slow link the bytes that were asked for take long, and the idle deadline has to see
 * that some of them come. */
void gp_receiver_tick(struct gp_channel *ch, uint64_t now_ns)
{
	if (now_ns - ch->recv.last_ns > HINT_NS_MAX)
		hint(ch, 1);
}

/* --- holding ---------------------------------------------------------------------------------------------------- */

#define KEPT_MOST (GP_CHANNEL_KEPT_BYTES / 2) /* then the connection is not read any more; one read may pass it */

static enum gp_status grow_kept(struct receiver *r, size_t need, struct gp_err *err)
{
	const size_t cap = need > KEPT_MOST ? need : KEPT_MOST;
	if (need <= r->kept_cap)
		return GP_OK;
	uint8_t *kept = gp_realloc(r->kept, cap, 1);
	if (!kept)
		GP_FAIL(err, GP_NOMEM, "out of memory for %zu bytes that wait", need);
	r->kept = kept;
	r->kept_cap = cap;
	return GP_OK;
}

static enum gp_status keep(struct gp_channel *ch, struct gp_span in, struct gp_err *err)
{
	struct receiver *r = &ch->recv;
	GP_TRY(grow_kept(r, r->kept_bytes + in.len, err));
	memcpy(r->kept + r->kept_bytes, in.data, in.len);
	r->kept_bytes += in.len;
	if (r->kept_bytes >= KEPT_MOST)
		gp_channel_pause(ch, true);
	return GP_OK;
}

/* Takes what can be taken; the rest waits. */
static void deliver(struct gp_channel *ch, struct gp_span in)
{
	struct gp_err err = {0};
	while (in.len && !ch->recv.held && !gp_channel_deaf(ch))
		if (take(ch, &in, &err) != GP_OK)
			gp_channel_fail(ch, &err);
	if (in.len && !gp_channel_deaf(ch) && keep(ch, in, &err) != GP_OK)
		gp_channel_fail(ch, &err);
}

void gp_channel_hold(struct gp_channel *ch)
{
	ch->recv.held = true;
}

void gp_channel_go_on(struct gp_channel *ch)
{
	struct receiver *r = &ch->recv;
	uint8_t *kept = r->kept;
	const struct gp_span in = {kept, r->kept_bytes};
	r->held = false;
	r->kept = NULL;
	r->kept_bytes = r->kept_cap = 0;
	r->now_ns = r->last_ns = gp_now_ns();
	r->timed = false;
	gp_channel_pause(ch, false);
	deliver(ch, in);
	gp_free(kept);
}

/* Once for what the kernel gives together, whatever number of reads that is here. */
static void take_time(struct gp_channel *ch)
{
	struct receiver *r = &ch->recv;
	const uint64_t came = ch->conn->read_ns;
	if (came <= r->now_ns)
		return;
	r->timed = r->partials > 0;
	if (r->timed)
		ch->account.received.timed_ns += came - r->now_ns;
	r->now_ns = came;
}

void gp_receiver_read(void *arg, const uint8_t *data, size_t len)
{
	struct gp_channel *ch = arg;
	struct receiver *r = &ch->recv;
	struct gp_dir_account *d = &ch->account.received;
	const uint64_t wire = ch->conn->bytes_read - r->conn_bytes;
	d->wire_bytes += wire;
	r->conn_bytes += wire;
	take_time(ch);
	d->timed_bytes += r->timed ? wire : 0;
	deliver(ch, (struct gp_span){data, len});
	*r->counter +=
		wire - len; /* what TLS added; as gpsplit sends them, no TLS record holds bytes of two of our records */
	r->last_ns = gp_now_ns();
	hint(ch, gp_channel_deaf(ch) ? 1 : bytes_needed(r));
}

void gp_channel_set_control_max(struct gp_channel *ch, uint32_t bytes)
{
	ch->recv.control_max = bytes < GP_CONTROL_BYTES_MAX ? bytes : GP_CONTROL_BYTES_MAX;
}

void gp_channel_set_frame_max(struct gp_channel *ch, uint64_t bytes)
{
	ch->recv.frame_max = bytes;
}

struct gp_frame *gp_channel_take_partial(struct gp_channel *ch)
{
	struct receiver *r = &ch->recv;
	if (!gp_channel_deaf(ch))
		return NULL;
	for (int k = 0; k < GP_CLASS_COUNT; k++) {
		struct gp_frame *f = r->partial[k];
		r->partial[k] = NULL;
		if (f) {
			r->partials--;
			return f;
		}
	}
	return NULL;
}
