/* SPDX-License-Identifier: Apache-2.0
 *
 * What OPEN asks for, checked. See open.h; PROTOCOL.md section 5.2.
 * Test: tests/unit/test_server.c; fuzz: tests/fuzz/fuzz_server_session.c
 */
#include "server/open.h"

#include "common/wire/graph_msg.h"

static enum gp_status check_range(const char *what, uint32_t value, uint32_t most, struct gp_err *err)
{
	if (value < 1 || value > most)
		GP_FAIL(err, GP_INVALID, "open: %s is %u; 1 to %u is possible here", what, value, most);
	return GP_OK;
}

/* A failure that would be a wrong flag at a terminal (GP_USAGE) is an invalid message here. */
static enum gp_status refuse_open(struct gp_err *err, const char *what)
{
	err->code = GP_INVALID;
	return gp_err_prefix(err, "open: %s", what);
}

static enum gp_status read_optimizer(const Gpsplit__Optimizer *m, struct gp_optim *o, struct gp_err *err)
{
	if (!m)
		GP_FAIL(err, GP_PROTO, "open: no optimizer");
	*o = (struct gp_optim){.kind = (enum gp_optim_kind)m->kind,
			       .momentum = m->momentum,
			       .nesterov = m->nesterov,
			       .weight_decay = m->weight_decay,
			       .beta1 = m->beta1,
			       .beta2 = m->beta2,
			       .eps = m->eps,
			       .clip_norm = m->clip_norm,
			       .clip_value = m->clip_value};
	return gp_optim_check(o, err) == GP_OK ? GP_OK : refuse_open(err, "optimizer");
}

static enum gp_status read_codecs(const Gpsplit__Open *m, struct gp_codec_spec codec[4], struct gp_err *err)
{
	static const char *const names[4] = {"codec_act_up", "codec_act_down", "codec_grad_up", "codec_grad_down"};
	const char *text[4] = {m->codec_act_up, m->codec_act_down, m->codec_grad_up, m->codec_grad_down};
	for (int i = 0; i < 4; i++)
		if (gp_codec_spec_parse(text[i], &codec[i], err) != GP_OK)
			return refuse_open(err, names[i]);
	return GP_OK;
}

static enum gp_status read_precision(uint32_t number, enum gp_precision *out, struct gp_err *err)
{
	if (number >= GP_PRECISIONS)
		GP_FAIL(err, GP_UNSUPPORTED, "open: this server knows no precision %u", number);
	*out = (enum gp_precision)number;
	return GP_OK;
}

static enum gp_status read_spec(const struct gp_server *srv, uint64_t session, const Gpsplit__Open *m,
				struct gp_body_spec *spec, struct gp_err *err)
{
	GP_TRY(check_range("window", m->window, (uint32_t)srv->set.window, err));
	GP_TRY(check_range("chunks", m->chunks, 1u << 20, err));
	GP_TRY(check_range("chunk_samples", m->chunk_samples, 1u << 20, err));
	*spec = (struct gp_body_spec){.session = session,
				      .seed = m->seed,
				      .chunk_samples = (int)m->chunk_samples,
				      .window = (int)m->window,
				      .chunks = (int)m->chunks,
				      .eval_only = m->eval_only,
				      .undo = srv->set.resume_window_s > 0,
				      .weights = m->weights,
				      .state_hash = m->state_hash};
	GP_TRY(read_optimizer(m->optimizer, &spec->optim, err));
	GP_TRY(read_codecs(m, spec->codec, err));
	GP_TRY(read_precision(m->precision, &spec->precision, err));
	if (!m->graph)
		GP_FAIL(err, GP_PROTO, "open: no graph");
	return gp_graph_from_msg(m->graph, srv->session_memory_bytes / sizeof(float), &spec->graph, err);
}

/* A task of the compute thread cannot be stopped, so how long it may take is settled before it begins. */
static enum gp_status check_work(const struct gp_server *srv, const struct gp_body_spec *spec, struct gp_err *err)
{
	const double work = (double)gp_graph_work(spec->graph) * spec->chunk_samples;
	if (work > srv->set.chunk_work)
		GP_FAIL(err, GP_INVALID,
			"open: a chunk takes %.3g multiply-accumulates, the server allows %.3g (--chunk-work); use "
			"smaller "
			"chunks",
			work, srv->set.chunk_work);
	return GP_OK;
}

enum gp_status gp_server_open_read(const struct gp_server *srv, uint64_t session, const Gpsplit__Open *m,
				   struct gp_body_spec *spec, struct gp_err *err)
{
	GP_TRY(read_spec(srv, session, m, spec, err));
	enum gp_status status = check_work(srv, spec, err);
	if (status != GP_OK)
		gp_graph_free(spec->graph);
	return status;
}
