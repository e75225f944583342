/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages to and from a channel. See control.h.
 * Test: tests/unit/test_control.c
 */
#include "common/wire/control.h"

#include <string.h>

#define ARENA_BLOCK_BYTES (16u << 10)
#define SPILL_BLOCK_BYTES (16u << 10)
/* A message that is unpacked takes at most so many times its bytes, and this many besides: a graph's nodes take a
 * dozen times theirs. A message that takes more was made to fill memory. */
#define SPILL_PER_BYTE    24
#define SPILL_BASE_BYTES  (64u << 10)

/* What does not fit into the arena's block goes into more of them, so that small pieces cost what they say. */
struct gp_control_spill {
	struct gp_control_spill *next;
	size_t bytes, used;
	max_align_t data[];
};

static void *take(struct gp_control_spill *s, size_t bytes)
{
	void *p = (uint8_t *)s->data + s->used;
	s->used += bytes;
	return p;
}

/* NULL: over the limit, or memory is out. */
static struct gp_control_spill *spill_new(struct gp_control_arena *a, size_t bytes)
{
	const size_t left = a->spilled < a->spill_limit ? a->spill_limit - a->spilled : 0;
	const size_t most = left > sizeof(struct gp_control_spill) ? left - sizeof(struct gp_control_spill) : 0;
	if (bytes > most)
		return NULL;
	if (bytes < SPILL_BLOCK_BYTES)
		bytes = most < SPILL_BLOCK_BYTES ? most : SPILL_BLOCK_BYTES;
	struct gp_control_spill *s = gp_calloc(1, sizeof *s + bytes);
	if (!s)
		return NULL;
	s->bytes = bytes;
	s->next = a->spill;
	a->spill = s;
	a->spilled += sizeof *s + bytes;
	return s;
}

static void *arena_alloc(void *arg, size_t size)
{
	struct gp_control_arena *a = arg;
	size_t rounded = (size + 15) & ~(size_t)15;
	if (rounded < size)
		return NULL;
	if (rounded <= a->block_bytes - a->used) {
		void *p = a->block + a->used;
		a->used += rounded;
		return p;
	}
	struct gp_control_spill *s = a->spill;
	if (!s || rounded > s->bytes - s->used)
		s = spill_new(a, rounded);
	a->refused = !s;
	return s ? take(s, rounded) : NULL;
}

static void arena_free(void *arg, void *p)
{
	(void)arg;
	(void)p; /* everything goes at the next reset */
}

void gp_control_arena_reset(struct gp_control_arena *a)
{
	while (a->spill) {
		struct gp_control_spill *next = a->spill->next;
		gp_free(a->spill);
		a->spill = next;
	}
	a->spilled = 0;
	a->used = 0;
	a->refused = false;
}

void gp_control_arena_init(struct gp_control_arena *a, size_t spill_max)
{
	memset(a, 0, sizeof *a);
	a->spill_max = spill_max;
	a->allocator = (ProtobufCAllocator){.alloc = arena_alloc, .free = arena_free, .allocator_data = a};
}

enum gp_status gp_control_arena_reserve(struct gp_control_arena *a, size_t bytes, struct gp_err *err)
{
	uint8_t *block = gp_alloc_aligned(ARENA_BLOCK_BYTES + bytes);
	if (!block)
		GP_FAIL(err, GP_NOMEM, "out of memory for control messages");
	gp_control_arena_reset(a);
	gp_free_aligned(a->block);
	a->block = block;
	a->block_bytes = ARENA_BLOCK_BYTES + bytes;
	return GP_OK;
}

void gp_control_arena_deinit(struct gp_control_arena *a)
{
	gp_control_arena_reset(a);
	gp_free_aligned(a->block);
	a->block = NULL;
}

static size_t spill_limit(size_t message_bytes, size_t spill_max)
{
	const size_t limit = SPILL_BASE_BYTES + SPILL_PER_BYTE * message_bytes;
	return limit < spill_max ? limit : spill_max;
}

size_t gp_control_unpacked_bytes(size_t message_bytes, size_t spill_max)
{
	return ARENA_BLOCK_BYTES + spill_limit(message_bytes, spill_max);
}

enum gp_status gp_control_unpack(struct gp_control_arena *a, struct gp_span bytes, const Gpsplit__Control **out,
				 struct gp_err *err)
{
	gp_control_arena_reset(a);
	if (!a->block)
		GP_TRY(gp_control_arena_reserve(a, 0, err));
	a->spill_limit = spill_limit(bytes.len, a->spill_max);
	Gpsplit__Control *m = gpsplit__control__unpack(&a->allocator, bytes.len, bytes.data);
	if (!m && a->refused)
		GP_FAIL(err, GP_NOMEM, "a control message of %zu bytes takes more than the %zu bytes allowed",
			bytes.len, a->spill_limit);
	if (!m)
		GP_FAIL(err, GP_PROTO, "a control message of %zu bytes cannot be parsed", bytes.len);
	if (m->body_case == GPSPLIT__CONTROL__BODY__NOT_SET)
		GP_FAIL(err, GP_PROTO, "a control message has no body this version knows");
	*out = m;
	return GP_OK;
}

static void pack_control(const void *m, uint8_t *out)
{
	gpsplit__control__pack(m, out);
}

enum gp_status gp_control_send(struct gp_channel *ch, const Gpsplit__Control *m, struct gp_err *err)
{
	size_t len = gpsplit__control__get_packed_size(m);
	if (len > GP_CONTROL_BYTES_MAX)
		GP_FAIL(err, GP_INVALID, "a control message of %zu bytes is over the limit of %u", len,
			GP_CONTROL_BYTES_MAX);
	return gp_channel_send_packed(ch, len, pack_control, m, err);
}

enum gp_status gp_control_send_error(struct gp_channel *ch, enum gp_status code, const char *text, uint32_t retry_ms,
				     struct gp_err *err)
{
	return gp_control_send_elsewhere(ch, code, text, retry_ms, NULL, 0, err);
}

enum gp_status gp_control_send_elsewhere(struct gp_channel *ch, enum gp_status code, const char *text,
					 uint32_t retry_ms, const char *const *servers, size_t count,
					 struct gp_err *err)
{
	Gpsplit__Error body = GPSPLIT__ERROR__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	body.code = (uint32_t)code;
	body.text = (char *)text;
	body.retry_ms = retry_ms;
	body.servers = (char **)servers;
	body.n_servers = count;
	m.body_case = GPSPLIT__CONTROL__BODY_ERROR;
	m.error = &body;
	return gp_control_send(ch, &m, err);
}

enum gp_status gp_control_send_commit(struct gp_channel *ch, const struct gp_commit *c, struct gp_err *err)
{
	Gpsplit__Commit body = GPSPLIT__COMMIT__INIT;
	Gpsplit__Told told = GPSPLIT__TOLD__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	body.step = c->step;
	body.lr = c->lr;
	body.grad_norm = c->grad_norm;
	body.checkpoint = c->checkpoint;
	body.n_rank = (size_t)c->ranks.count;
	body.rank = (uint32_t *)c->ranks.rank;
	body.n_rung = (size_t)c->rungs.count;
	body.rung = (uint32_t *)c->rungs.rung;
	told.loss = c->loss;
	body.told = c->tells_loss ? &told : NULL;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &body;
	return gp_control_send(ch, &m, err);
}

enum gp_status gp_control_send_grad_squares(struct gp_channel *ch, uint64_t step, const double *sum, int n,
					    struct gp_err *err)
{
	Gpsplit__GradSquares body = GPSPLIT__GRAD_SQUARES__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	body.step = step;
	body.n_sum = (size_t)n;
	body.sum = (double *)sum;
	m.body_case = GPSPLIT__CONTROL__BODY_GRAD_SQUARES;
	m.grad_squares = &body;
	return gp_control_send(ch, &m, err);
}

enum gp_status gp_control_send_chunk_done(struct gp_channel *ch, uint64_t step, uint32_t chunk, struct gp_err *err)
{
	Gpsplit__ChunkDone body = GPSPLIT__CHUNK_DONE__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	body.step = step;
	body.chunk = chunk;
	m.body_case = GPSPLIT__CONTROL__BODY_CHUNK_DONE;
	m.chunk_done = &body;
	return gp_control_send(ch, &m, err);
}

static void write_survey(const struct gp_committed_survey *from, Gpsplit__Surveyed *to)
{
	gpsplit__surveyed__init(to);
	to->direction = (uint32_t)from->direction;
	to->rung = (uint32_t)from->rung;
	to->tensor_bytes = from->tensor_bytes;
	to->payload_bytes = from->payload_bytes;
	to->error = from->error;
	to->cosine = from->cosine;
}

static enum gp_status send_committed(struct gp_channel *ch, Gpsplit__Committed *body, const struct gp_committed *c,
				     struct gp_err *err)
{
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	Gpsplit__Surveyed survey[GP_COMMITTED_SURVEYED], *surveys[GP_COMMITTED_SURVEYED];
	for (int i = 0; i < c->surveyed; i++) {
		surveys[i] = &survey[i];
		write_survey(&c->survey[i], &survey[i]);
	}
	body->n_surveyed = (size_t)c->surveyed;
	body->surveyed = surveys;
	body->n_rank = (size_t)c->ranks.count;
	body->rank = (uint32_t *)c->ranks.rank;
	body->n_rung = (size_t)c->rungs.count;
	body->rung = (uint32_t *)c->rungs.rung;
	body->link_bytes = c->link_bytes;
	body->link_busy_us = c->link_busy_us;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMITTED;
	m.committed = body;
	return gp_control_send(ch, &m, err);
}

enum gp_status gp_control_send_committed(struct gp_channel *ch, uint64_t step, const struct gp_committed *c,
					 struct gp_err *err)
{
	Gpsplit__Committed body = GPSPLIT__COMMITTED__INIT;
	body.step = step;
	return send_committed(ch, &body, c, err);
}

enum gp_status gp_control_send_checkpointed(struct gp_channel *ch, uint64_t step, const struct gp_committed *c,
					    const char *why, struct gp_err *err)
{
	Gpsplit__Committed body = GPSPLIT__COMMITTED__INIT;
	body.step = step;
	body.checkpoint = !why;
	if (why)
		body.checkpoint_error = (char *)why;
	return send_committed(ch, &body, c, err);
}

enum gp_status gp_control_send_fetch_params(struct gp_channel *ch, struct gp_err *err)
{
	Gpsplit__FetchParams body = GPSPLIT__FETCH_PARAMS__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	m.body_case = GPSPLIT__CONTROL__BODY_FETCH_PARAMS;
	m.fetch_params = &body;
	return gp_control_send(ch, &m, err);
}

enum gp_status gp_control_send_params_done(struct gp_channel *ch, uint32_t count, struct gp_err *err)
{
	Gpsplit__ParamsDone body = GPSPLIT__PARAMS_DONE__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	body.count = count;
	m.body_case = GPSPLIT__CONTROL__BODY_PARAMS_DONE;
	m.params_done = &body;
	return gp_control_send(ch, &m, err);
}

enum gp_status gp_control_send_bye(struct gp_channel *ch, struct gp_err *err)
{
	Gpsplit__Bye body = GPSPLIT__BYE__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	m.body_case = GPSPLIT__CONTROL__BODY_BYE;
	m.bye = &body;
	return gp_control_send(ch, &m, err);
}

const char *gp_control_name(const Gpsplit__Control *m)
{
	const ProtobufCFieldDescriptor *f =
		protobuf_c_message_descriptor_get_field(&gpsplit__control__descriptor, (unsigned)m->body_case);
	return f ? f->name : "?";
}

const char *gp_text_sanitize(const char *text, char *out, size_t size)
{
	size_t n = 0;
	for (; text && text[n] && n + 1 < size; n++)
		out[n] = (unsigned char)text[n] < 0x20 || (unsigned char)text[n] >= 0x7f ? '?' : text[n];
	out[n] = '\0';
	return out;
}
