/* SPDX-License-Identifier: Apache-2.0
 *
 * SRV records. See srv.h. Test: tests/unit/test_srv.c
 */
#include "common/net/srv.h"

#include <arpa/nameser.h>
#include <netdb.h>
#include <resolv.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/net/conn.h"
#include "common/net/token.h"

#define SRV_MESSAGE_BYTES 8192
#define SRV_FIXED_BYTES   6 /* priority, weight, port, before the host */
#define ANSWER_S          2 /* that the resolver waits for a name server at first */
#define TRIES             2

/* Reading. */

static uint16_t big_endian(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* Checked like an address that a peer names. A host of "." says that the service is not offered. */
static bool read_target(const ns_msg *m, const ns_rr *rr, struct gp_srv_target *t)
{
	char address[300];
	const uint8_t *data = ns_rr_rdata(*rr);
	if (ns_rr_type(*rr) != ns_t_srv || ns_rr_rdlen(*rr) <= SRV_FIXED_BYTES)
		return false;
	*t = (struct gp_srv_target){
		.priority = big_endian(data), .weight = big_endian(data + 2), .port = big_endian(data + 4)};
	if (ns_name_uncompress(ns_msg_base(*m), ns_msg_end(*m), data + SRV_FIXED_BYTES, t->host, sizeof t->host) < 0)
		return false;
	gp_addr_format(t->host, t->port, address, sizeof address);
	return strcmp(t->host, ".") != 0 && gp_addr_is_plain(address);
}

enum gp_status gp_srv_read(const uint8_t *message, size_t len, struct gp_srv_answer *out, struct gp_err *err)
{
	ns_msg m;
	ns_rr rr;
	out->count = 0;
	if (len > SRV_MESSAGE_BYTES || ns_initparse(message, (int)len, &m) != 0)
		GP_FAIL(err, GP_PEER, "what the name server answers cannot be read");
	for (int i = 0; i < ns_msg_count(m, ns_s_an) && out->count < GP_SRV_MAX; i++) {
		if (ns_parserr(&m, ns_s_an, i, &rr) != 0)
			GP_FAIL(err, GP_PEER, "what the name server answers cannot be read");
		out->count += read_target(&m, &rr, &out->target[out->count]);
	}
	if (out->count == 0)
		GP_FAIL(err, GP_PEER, "the name server has no SRV record of a server");
	return GP_OK;
}

/* Order. */

static void swap(struct gp_srv_target *a, struct gp_srv_target *b)
{
	const struct gp_srv_target t = *a;
	*a = *b;
	*b = t;
}

static void sort_by_priority(struct gp_srv_answer *a)
{
	for (int i = 1; i < a->count; i++)
		for (int k = i; k > 0 && a->target[k].priority < a->target[k - 1].priority; k--)
			swap(&a->target[k], &a->target[k - 1]);
}

/* One of [from, to) by weight; those of weight 0 have a small chance, too. */
static int pick(const struct gp_srv_answer *a, int from, int to, uint32_t (*draw)(void *, uint32_t), void *arg)
{
	uint32_t sum = 0, at;
	for (int i = from; i < to; i++)
		sum += a->target[i].weight + 1u;
	at = draw(arg, sum);
	for (int i = from; i < to; i++) {
		if (at <= a->target[i].weight)
			return i;
		at -= a->target[i].weight + 1u;
	}
	return from;
}

void gp_srv_order(struct gp_srv_answer *a, uint32_t (*draw)(void *arg, uint32_t below), void *arg)
{
	sort_by_priority(a);
	for (int i = 0, to = 0; i < a->count; i++) {
		for (; to < a->count && a->target[to].priority == a->target[i].priority; to++)
			;
		swap(&a->target[i], &a->target[pick(a, i, to, draw, arg)]);
	}
}

/* Asking. */

struct gp_srv_lookup {
	uv_work_t work;
	char question[320], name[256];
	uint8_t message[SRV_MESSAGE_BYTES];
	int len, failure; /* failure: h_errno's */
	void (*done)(void *arg, const struct gp_srv_answer *a, const struct gp_err *err);
	void *arg;
};

static void ask(uv_work_t *work)
{
	struct gp_srv_lookup *l = work->data;
	struct __res_state state;
	memset(&state, 0, sizeof state);
	l->len = -1;
	l->failure = NO_RECOVERY;
	if (res_ninit(&state) != 0)
		return;
	state.retrans = ANSWER_S; /* a thread of libuv's, which resolves other names, too, waits for it */
	state.retry = TRIES;
	l->len = res_nsearch(&state, l->question, ns_c_in, ns_t_srv, l->message, sizeof l->message);
	l->failure = state.res_h_errno;
	res_nclose(&state);
}

static uint32_t draw_any(void *arg, uint32_t below)
{
	uint32_t draw = 0;
	(void)arg;
	struct gp_err ignored;
	gp_random_bytes(&draw, sizeof draw, &ignored);
	return draw % below;
}

static void on_answer(uv_work_t *work, int status)
{
	struct gp_srv_lookup *l = work->data;
	struct gp_srv_answer answer;
	struct gp_err err = {0};
	(void)status;
	if (!l->done) { /* canceled */
		gp_free(l);
		return;
	}
	if (l->len < 0)
		gp_err_set(&err, GP_PEER, l->failure, __FILE__, __LINE__, "no SRV record: %s", hstrerror(l->failure));
	else if (gp_srv_read(l->message, (size_t)l->len < sizeof l->message ? (size_t)l->len : sizeof l->message,
			     &answer, &err) == GP_OK)
		gp_srv_order(&answer, draw_any, NULL);
	if (err.code != GP_OK)
		gp_err_prefix(&err, "srv:%s", l->name);
	l->done(l->arg, err.code == GP_OK ? &answer : NULL, err.code == GP_OK ? NULL : &err);
	gp_free(l);
}

enum gp_status gp_srv_look_up(uv_loop_t *loop, const char *name,
			      void (*done)(void *arg, const struct gp_srv_answer *a, const struct gp_err *err),
			      void *arg, struct gp_srv_lookup **out, struct gp_err *err)
{
	struct gp_srv_lookup *l;
	GP_TRY(gp_alloc_array((void **)&l, 1, sizeof *l, err));
	memset(l, 0, sizeof *l);
	l->work.data = l;
	l->done = done;
	l->arg = arg;
	snprintf(l->name, sizeof l->name, "%s", name);
	snprintf(l->question, sizeof l->question, "_gpsplit._tcp.%s", l->name);
	const int rc = uv_queue_work(loop, &l->work, ask, on_answer);
	if (rc) {
		gp_free(l);
		GP_FAIL(err, GP_PEER, "srv:%s: %s", name, uv_strerror(rc));
	}
	*out = l;
	return GP_OK;
}

void gp_srv_cancel(struct gp_srv_lookup *l)
{
	l->done = NULL;
	uv_cancel((uv_req_t *)&l->work); /* one that has not begun; the others end by themselves */
}
