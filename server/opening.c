/* SPDX-License-Identifier: Apache-2.0
 *
 * See opening.h. Test: tests/unit/test_server_time.c
 */
#include "server/opening.h"

#include <string.h>

#include "common/base/stop.h"
#include "common/wire/graph_msg.h"
#include "server/link.h"
#include "server/open.h"
#include "server/usage.h"

#define SPILL_BYTES (16u << 20) /* memory of one unpacked OPEN: 4096 nodes fit many times */

struct gp_server_opening {
	struct gp_server_session *session;
	struct gp_lane lane;
	struct gp_task task;
	struct gp_stop stop;
	uint8_t *bytes;
	size_t len;
	/* what the task has found */
	bool gave_up; /* the client said ERROR: there is no OPEN */
	struct gp_body_spec spec;
	uint64_t restore_step;
};

static enum gp_status read_message(struct gp_server_opening *o, const Gpsplit__Control *m, struct gp_err *err)
{
	const struct gp_server_session *s = o->session;
	char text[256];
	GP_TRY(gp_control_check(GP_END_CLIENT, GP_LINK_OPEN, m, err));
	o->gave_up = m->body_case == GPSPLIT__CONTROL__BODY_ERROR;
	if (o->gave_up)
		GP_FAIL(err, GP_PEER, "the client gave up: %s", gp_text_sanitize(m->error->text, text, sizeof text));
	if (m->body_case !=
	    GPSPLIT__CONTROL__BODY_OPEN) /* a MEASURE that gp_server_measure_asked has not taken for one */
		GP_FAIL(err, GP_PROTO, "a %s message of %zu bytes was not taken: it is too long", gp_control_name(m),
			o->len);
	o->restore_step = m->open->restore_step;
	return gp_server_open_read(s->srv, s->id, m->open, &o->spec, err);
}

static enum gp_status read_bytes(struct gp_server_opening *o, struct gp_err *err)
{
	struct gp_control_arena arena;
	const Gpsplit__Control *m;
	if (gp_stop_is_set(&o->stop))
		GP_FAIL(err, GP_CANCELED, "the session has ended");
	gp_control_arena_init(&arena, SPILL_BYTES);
	enum gp_status status = gp_control_unpack(&arena, (struct gp_span){o->bytes, o->len}, &m, err);
	if (status == GP_OK)
		status = read_message(o, m, err);
	gp_control_arena_deinit(&arena);
	return status;
}

static void run_read(struct gp_task *task)
{
	task->status = read_bytes(task->arg, &task->err);
}

static void opening_free(struct gp_server_opening *o)
{
	gp_lane_deinit(&o->lane);
	gp_free(o->bytes);
	gp_free(o);
}

/* The graph is the link's from here on. */
static void go_on(struct gp_server_link *l, const struct gp_server_opening *o)
{
	struct gp_err err = o->task.err;
	enum gp_status status = o->task.status;
	if (status == GP_OK)
		status = gp_server_link_open(l, &o->spec, o->restore_step, &err);
	l->ended |= o->gave_up;
	l->progress_ns = gp_now_ns();
	if (status != GP_OK)
		gp_server_link_stop(l, status, err.text);
	else
		gp_channel_go_on(l->ch);
}

static void read_done(struct gp_task *task)
{
	struct gp_server_opening *o = task->arg;
	struct gp_server_session *s = o->session;
	const bool wanted = !s->ending && s->link && s->link->state == GP_LINK_OPEN;
	s->opening = NULL;
	if (wanted)
		go_on(s->link, o);
	else if (task->status == GP_OK)
		gp_graph_free(o->spec.graph);
	opening_free(o);
	if (!wanted)
		gp_server_session_settle(s);
}

/* The channel's copy and ours, the message unpacked, and the graph that is made of it; what comes behind it meanwhile. */
enum gp_status gp_server_opening_expect(struct gp_server_link *l, uint32_t bytes, struct gp_err *err)
{
	const uint64_t need = 2 * (uint64_t)bytes + gp_control_unpacked_bytes(bytes, SPILL_BYTES) +
			      gp_graph_msg_most_bytes(bytes) + GP_CHANNEL_KEPT_BYTES;
	if (gp_usage_reserve_memory(l->session, need, err) != GP_OK)
		return gp_err_prefix(err, "open: to read %u bytes", bytes);
	return GP_OK;
}

enum gp_status gp_server_opening_begin(struct gp_server_link *l, struct gp_span bytes, struct gp_err *err)
{
	struct gp_server_opening *o;
	GP_TRY(gp_server_opening_expect(l, (uint32_t)bytes.len, err));
	gp_channel_set_control_max(l->ch, GP_CONTROL_STEADY_BYTES); /* nothing as long comes again */
	GP_TRY(gp_alloc_array((void **)&o, 1, sizeof *o, err));
	o->session = l->session;
	o->len = bytes.len;
	const enum gp_status status = gp_alloc_array((void **)&o->bytes, bytes.len, 1, err);
	if (status != GP_OK) {
		gp_free(o);
		return status;
	}
	memcpy(o->bytes, bytes.data, bytes.len);
	gp_lane_init(&o->lane, l->srv->build, &l->srv->openings);
	o->task = (struct gp_task){.run = run_read, .done = read_done, .arg = o};
	l->session->opening = o;
	gp_channel_hold(l->ch);
	gp_worker_submit(&o->lane, &o->task, 0);
	return GP_OK;
}

void gp_server_opening_stop(struct gp_server_opening *o)
{
	if (o)
		gp_stop_set(&o->stop);
}
