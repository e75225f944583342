/* SPDX-License-Identifier: Apache-2.0
 *
 * Two connections joined in memory, for tests and fuzzing: reads of a chosen
 * size, no buffering, a link that can be cut after N bytes. Bytes go from the
 * writer's buffers straight into the reader's callback, from an idle handle of
 * the loop. Test: tests/unit/test_conn.c
 */
#include "common/net/conn.h"

#include "common/base/clock.h"

#define READS_PER_TURN 256 /* so that 1-byte reads do not cost a loop turn each */

struct mem_pair;

struct mem_conn {
	struct gp_conn base;
	struct mem_pair *pair;
	struct mem_conn *other;
	struct gp_conn_write *head, **tail; /* not delivered yet */
	unsigned at_buf;                    /* progress within head */
	size_t at_byte;
	uint64_t delivered, cut_after;
	bool reading, shut, closing, closed, over; /* over: `ended` ran */
	void (*closed_cb)(void *arg);
	void *closed_arg;
};

struct mem_pair {
	uv_idle_t idle;
	struct mem_conn end[2];
	size_t chunk;
	bool cut;
};

static void on_idle(uv_idle_t *idle);

static void wake(struct mem_pair *p)
{
	uv_idle_start(&p->idle, on_idle);
}

static struct mem_conn *mem_of(struct gp_conn *c)
{
	return (struct mem_conn *)c;
}

static void mem_write(struct gp_conn *c, struct gp_conn_write *w, const uv_buf_t *bufs, unsigned nbufs)
{
	struct mem_conn *m = mem_of(c);
	gp_require(nbufs >= 1 && nbufs <= GP_CONN_WRITE_BUFS && !m->shut && !m->closing);
	w->conn = c;
	w->next = NULL;
	w->nbufs = nbufs;
	w->bytes = 0;
	for (unsigned i = 0; i < nbufs; i++) {
		w->bufs[i] = bufs[i];
		w->bytes += bufs[i].len;
	}
	*m->tail = w;
	m->tail = &w->next;
	wake(m->pair);
}

static void mem_read_start(struct gp_conn *c)
{
	mem_of(c)->reading = true;
	wake(mem_of(c)->pair);
}

static void mem_read_stop(struct gp_conn *c)
{
	mem_of(c)->reading = false;
}

static void mem_shutdown(struct gp_conn *c)
{
	mem_of(c)->shut = true;
	wake(mem_of(c)->pair);
}

static uint64_t mem_unsent(const struct gp_conn *c)
{
	const struct mem_conn *m = (const struct mem_conn *)c;
	uint64_t sum = 0;
	for (const struct gp_conn_write *w = m->head; w; w = w->next)
		sum += w->bytes;
	if (!m->head)
		return 0;
	for (unsigned i = 0; i < m->at_buf; i++)
		sum -= m->head->bufs[i].len;
	return sum - m->at_byte;
}

static void mem_close(struct gp_conn *c, void (*closed)(void *arg), void *arg)
{
	struct mem_conn *m = mem_of(c);
	gp_require(!m->closing);
	m->closing = true;
	m->reading = false;
	m->closed_cb = closed;
	m->closed_arg = arg;
	wake(m->pair);
}

static const struct gp_conn_ops mem_ops = {
	.name = "memory",
	.write = mem_write,
	.read_start = mem_read_start,
	.read_stop = mem_read_stop,
	.shutdown = mem_shutdown,
	.unsent = mem_unsent,
	.close = mem_close,
};

static struct gp_conn_write *pop_write(struct mem_conn *m)
{
	struct gp_conn_write *w = m->head;
	m->head = w->next;
	if (!m->head)
		m->tail = &m->head;
	m->at_buf = 0;
	m->at_byte = 0;
	return w;
}

static void end(struct mem_conn *m, enum gp_status status, const char *why)
{
	if (m->over || m->closing)
		return;
	m->over = true;
	m->base.cbs.ended(m->base.arg, status, why);
}

static void finish_head(struct mem_conn *m)
{
	struct gp_conn_write *w = pop_write(m);
	m->base.bytes_written += w->bytes;
	w->cb(w->arg, GP_OK);
}

/* Hands one piece of m's first write to the other end. False when nothing could move. */
static bool deliver(struct mem_conn *m)
{
	struct mem_conn *to = m->other;
	if (!m->head || m->closing || !to->reading || to->over || m->pair->cut)
		return false;
	if (m->at_buf == m->head->nbufs) {
		finish_head(m);
		return true;
	}
	const uv_buf_t *b = &m->head->bufs[m->at_buf];
	size_t n = b->len - m->at_byte;
	if (m->pair->chunk && n > m->pair->chunk)
		n = m->pair->chunk;
	if (n > m->cut_after - m->delivered)
		n = (size_t)(m->cut_after - m->delivered);
	const uint8_t *data = (const uint8_t *)b->base + m->at_byte;
	m->at_byte += n;
	m->delivered += n;
	if (m->at_byte == b->len) {
		m->at_buf++;
		m->at_byte = 0;
	}
	if (m->delivered >= m->cut_after)
		m->pair->cut = true;
	to->base.bytes_read += n;
	to->base.read_ns = gp_now_ns();
	if (n)
		to->base.cbs.read(to->base.arg, data, n);
	return true;
}

static void cancel_writes(struct mem_conn *m)
{
	while (m->head) {
		struct gp_conn_write *w = pop_write(m);
		w->cb(w->arg, GP_CANCELED);
	}
}

static void on_pair_closed(uv_handle_t *h)
{
	gp_free(h->data);
}

/* May free the pair (from the loop, later). */
static void finish_close(struct mem_conn *m)
{
	cancel_writes(m);
	m->closed = true;
	if (m->closed_cb)
		m->closed_cb(m->closed_arg);
	if (m->other->closed)
		uv_close((uv_handle_t *)&m->pair->idle, on_pair_closed);
}

/* What became of m's peer, once m has read everything. */
static void notice_end(struct mem_conn *m)
{
	struct mem_conn *other = m->other;
	if (m->pair->cut)
		end(m, GP_PEER, "the memory link was cut");
	else if (other->closing && m->head)
		end(m, GP_PEER, "the other end of the memory link is closed");
	else if (m->reading && (other->closing || (other->shut && !other->head)))
		end(m, GP_OK, "memory peer closed the connection");
}

static void on_idle(uv_idle_t *idle)
{
	struct mem_pair *p = idle->data;
	bool moved = false;
	for (int i = 0; i < 2; i++)
		for (int n = 0; n < READS_PER_TURN && deliver(&p->end[i]); n++)
			moved = true;
	if (!moved)
		uv_idle_stop(idle); /* before callbacks that may wake it */
	for (int i = 0; i < 2; i++)
		notice_end(&p->end[i]);
	for (int i = 0; i < 2; i++)
		if (p->end[i].closing && !p->end[i].closed)
			finish_close(&p->end[i]);
}

static void mem_init(struct mem_conn *m, struct mem_pair *p, int i)
{
	m->base.ops = &mem_ops;
	m->pair = p;
	m->other = &p->end[!i];
	m->tail = &m->head;
	m->cut_after = UINT64_MAX;
	snprintf(m->base.peer, sizeof m->base.peer, "memory:%c", i ? 'a' : 'b');
}

enum gp_status gp_mem_pair(uv_loop_t *loop, size_t chunk, struct gp_conn **a, struct gp_conn **b, struct gp_err *err)
{
	struct mem_pair *p;
	GP_TRY(gp_alloc_array((void **)&p, 1, sizeof *p, err));
	uv_idle_init(loop, &p->idle);
	p->idle.data = p;
	p->chunk = chunk;
	for (int i = 0; i < 2; i++)
		mem_init(&p->end[i], p, i);
	*a = &p->end[0].base;
	*b = &p->end[1].base;
	return GP_OK;
}

void gp_mem_cut_after(struct gp_conn *c, uint64_t bytes)
{
	mem_of(c)->cut_after = bytes;
	if (mem_of(c)->delivered >= bytes)
		mem_of(c)->pair->cut = true;
	wake(mem_of(c)->pair);
}
