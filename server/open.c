/* SPDX-License-Identifier: Apache-2.0
 *
 * What OPEN asks for, checked. See open.h; PROTOCOL.md section 5.2.
 * Test: tests/unit/test_server.c; fuzz: tests/fuzz/fuzz_server_session.c
 */
#include "server/open.h"

#include "common/base/mem.h"
#include "common/codec/codec_store.h"
#include "common/wire/graph_msg.h"

static enum gp_status read_spec(const struct gp_server *srv, uint64_t id, const Gpsplit__Open *m,
				struct gp_body_spec *spec, struct gp_err *err)
{
	*spec = (struct gp_body_spec){
		.id = id, .weights = m->weights, .state_hash = m->state_hash, .intervals = m->intervals};
	GP_TRY(gp_session_spec_read(m, srv->set.window, &spec->session, err));
	spec->session.undo = srv->set.resume_window_s > 0;
	if (!m->graph)
		GP_FAIL(err, GP_PROTO, "open: no graph");
	GP_TRY(gp_graph_from_msg(m->graph, srv->session_memory_bytes / sizeof(float), &spec->graph, err));
	if (gp_graph_set_blocks(spec->graph, m->n_block, m->block, err) == GP_OK &&
	    gp_decays_check(&spec->session.decays, spec->graph, err) == GP_OK)
		return GP_OK;
	gp_graph_free(spec->graph);
	return gp_err_prefix(err, "open");
}

/* Chunks have equal sizes: the largest of at most `most` samples that the batch can be cut into. */
static int64_t fitting_chunk(int64_t batch, int64_t most)
{
	int64_t samples = most;
	while (samples > 1 && batch % samples != 0)
		samples--;
	return samples;
}

static enum gp_status refuse_time(const struct gp_session_spec *session, bool backward, double seconds, double limit_s,
				  int64_t samples, struct gp_err *err)
{
	const int64_t batch = gp_session_batch(session);
	const char *pass = backward ? "backward" : "forward";
	if (samples < 1)
		GP_FAIL(err, GP_INVALID,
			"open: a %s pass over a chunk of %d samples would take %.3g s here, the server allows %.3g s "
			"(--task-time), and one sample alone does not fit: use a smaller body",
			pass, session->chunk_samples, seconds, limit_s);
	GP_FAIL(err, GP_INVALID,
		"open: a %s pass over a chunk of %d samples would take %.3g s here, the server allows %.3g s "
		"(--task-time); --chunks %lld would fit",
		pass, session->chunk_samples, seconds, limit_s, (long long)(batch / fitting_chunk(batch, samples)));
}

static void add_coding(const struct gp_codec_spec *codec, bool encodes, uint64_t elements, struct gp_work *pass)
{
	struct gp_work coding = {0};
	if (!gp_mul_ok(elements, gp_store_work(codec, encodes), &coding.elements))
		coding.elements = UINT64_MAX;
	gp_work_add(pass, &coding);
}

static uint64_t edge_elements(const struct gp_graph *g)
{
	uint64_t sum = 0;
	for (int i = 0; i < g->inputs; i++)
		sum += gp_shape_elements(&g->value[i].type.shape);
	for (int i = 0; i < g->outputs; i++)
		sum += gp_shape_elements(&gp_graph_output_type(g, i)->shape);
	return sum;
}

/* What is computed a second time, or encoded in forward and decoded in backward. What lies at the body's edge is both encoded
 * and decoded when backward begins, and a gradient of a map when it is there. */
static void add_memory_work(const struct gp_graph *g, const struct gp_session_spec *session, struct gp_work *forward,
			    struct gp_work *backward)
{
	const struct gp_codec_spec *maps = gp_session_maps(session);
	const struct gp_codec_spec *grads = gp_session_codec(session, GP_STRUCT_GRAD_MAPS);
	const uint64_t elements = forward->elements;
	if (session->recompute)
		gp_work_add(backward, forward);
	for (int encodes = 0; grads && encodes < 2; encodes++)
		add_coding(grads, encodes, elements, backward);
	if (!maps)
		return;
	add_coding(maps, true, elements, forward);
	add_coding(maps, false, elements, backward);
	add_coding(maps, true, edge_elements(g), backward);
}

/* An update itself is a matter of moments. Where parameters, their gradients and what the optimizer remembers pass through
 * codecs, each of them takes as long as many. */
static struct gp_work coding_of_update(const struct gp_graph *g, const struct gp_session_spec *session)
{
	static const enum gp_structure coded[] = {GP_STRUCT_WEIGHTS, GP_STRUCT_WEIGHT_GRADS, GP_STRUCT_STATE};
	struct gp_work sum = {0};
	for (size_t i = 0; i < sizeof coded / sizeof coded[0]; i++) {
		const struct gp_codec_spec *codec = gp_session_codec(session, coded[i]);
		const int arrays = coded[i] == GP_STRUCT_STATE ? gp_optim_states(&session->optim) : 1;
		for (int k = 0; codec && k < 2 * arrays; k++)
			add_coding(codec, k % 2, g->trained_elements, &sum);
	}
	return sum;
}

static enum gp_status check_update(const struct gp_graph *g, const struct gp_session_spec *session,
				   const struct gp_speed *speed, double limit_s, struct gp_err *err)
{
	const struct gp_work work = coding_of_update(g, session);
	const double seconds = gp_work_seconds(&work, speed, 1);
	if (seconds > limit_s)
		GP_FAIL(err, GP_INVALID,
			"open: an update of %llu parameters would take %.3g s here by its codecs, the server allows "
			"%.3g s (--task-time): leave weights, weight-grads or state out of --compress, or use a "
			"smaller body",
			(unsigned long long)g->trained_elements, seconds, limit_s);
	return GP_OK;
}

enum gp_status gp_server_open_check_time(const struct gp_graph *graph, const struct gp_session_spec *session,
					 const struct gp_speed *speed, double limit_s, double *task_s,
					 struct gp_err *err)
{
	struct gp_work work[2];
	gp_graph_work(graph, &work[0], &work[1]);
	const int passes = session->eval_only ? 1 : 2;
	int64_t samples = session->chunk_samples;
	double seconds[2] = {0.0, 0.0};
	add_memory_work(graph, session, &work[0], &work[1]);
	for (int i = 0; i < passes; i++) {
		seconds[i] = gp_work_seconds(&work[i], speed, session->chunk_samples);
		samples = gp_work_samples_within(&work[i], speed, limit_s, samples);
	}
	const bool backward = seconds[1] > seconds[0];
	*task_s = seconds[backward];
	if (*task_s > limit_s)
		return refuse_time(session, backward, *task_s, limit_s, samples, err);
	return check_update(graph, session, speed, limit_s, err);
}

/* What a device has begun it may not be able to leave, so how long it may take is settled before. */
static enum gp_status check_work(const struct gp_server *srv, struct gp_body_spec *spec, struct gp_err *err)
{
	const struct gp_speed speed = gp_server_devices_speed(&srv->devices);
	spec->task_limit_s = srv->set.task_time_s;
	return gp_server_open_check_time(spec->graph, &spec->session, &speed, spec->task_limit_s, &spec->task_s, err);
}

enum gp_status gp_server_open_read(const struct gp_server *srv, uint64_t id, const Gpsplit__Open *m,
				   struct gp_body_spec *spec, struct gp_err *err)
{
	GP_TRY(read_spec(srv, id, m, spec, err));
	enum gp_status status = check_work(srv, spec, err);
	if (status != GP_OK)
		gp_graph_free(spec->graph);
	return status;
}
