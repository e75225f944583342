/* SPDX-License-Identifier: Apache-2.0
 *
 * See session_spec.h. Test: tests/unit/test_session_spec.c
 */
#include "common/wire/session_spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/codec/codec_store.h"
#include "common/wire/frame.h"
#include "common/wire/graph_msg.h"

#define CHUNKS_MAX        (1u << 20)
#define CHUNK_SAMPLES_MAX (1u << 20)

const char *const gp_structure_name[GP_STRUCTS] = {[GP_STRUCT_GRAD_MAPS] = "grad-maps",
						   [GP_STRUCT_WEIGHTS] = "weights",
						   [GP_STRUCT_WEIGHT_GRADS] = "weight-grads",
						   [GP_STRUCT_STATE] = "state"};

void gp_session_coded(const struct gp_session_spec *s, struct gp_plan_spec *out)
{
	for (int i = 0; i < GP_STRUCTS; i++)
		out->coded[i] = gp_session_codec(s, (enum gp_structure)i);
	out->no_master = s->no_master;
}

uint32_t gp_session_coded_bits(const struct gp_session_spec *s)
{
	uint32_t bits = 0;
	for (int i = 0; i < GP_STRUCTS; i++)
		bits |= gp_session_codec(s, (enum gp_structure)i) ? 1u << i : 0;
	return bits;
}

/* To OPEN and back. */

static void write_decays(const struct gp_decays *d, Gpsplit__Open *open, struct gp_session_parts *parts)
{
	for (int i = 0; i < d->count; i++) {
		Gpsplit__Decay *to = parts->decays[i] = &parts->decay[i];
		gpsplit__decay__init(to);
		to->encoder = (char *)d->decay[i].encoder;
		to->decoder = (char *)d->decay[i].decoder;
		to->rate = d->decay[i].rate;
		to->every = d->decay[i].every;
		to->times = d->decay[i].times;
		to->l1 = d->decay[i].l1;
	}
	open->decay = parts->decays;
	open->n_decay = (size_t)d->count;
}

void gp_session_spec_write(const struct gp_session_spec *s, Gpsplit__Open *open, struct gp_session_parts *parts)
{
	Gpsplit__Optimizer *optimizer = &parts->optimizer;
	gpsplit__optimizer__init(optimizer);
	write_decays(&s->decays, open, parts);
	optimizer->kind = (uint32_t)s->optim.kind;
	optimizer->momentum = s->optim.momentum;
	optimizer->nesterov = s->optim.nesterov;
	optimizer->weight_decay = s->optim.weight_decay;
	optimizer->beta1 = s->optim.beta1;
	optimizer->beta2 = s->optim.beta2;
	optimizer->eps = s->optim.eps;
	optimizer->clip_norm = s->optim.clip_norm;
	optimizer->clip_value = s->optim.clip_value;
	open->optimizer = optimizer;
	open->precision = (uint32_t)s->precision;
	open->choose_precision = s->choose_precision;
	open->seed = s->seed;
	open->chunk_samples = (uint32_t)s->chunk_samples;
	open->chunks = (uint32_t)s->chunks;
	open->window = (uint32_t)s->window;
	open->eval_only = s->eval_only;
	open->calibrates = s->calibrates;
	open->lengths = s->lengths;
	open->recompute = s->recompute;
	open->maps = (char *)s->maps.text;
	open->grad_maps = (char *)s->coded[GP_STRUCT_GRAD_MAPS].text;
	open->weights_codec = (char *)s->coded[GP_STRUCT_WEIGHTS].text;
	open->weight_grads = (char *)s->coded[GP_STRUCT_WEIGHT_GRADS].text;
	open->state = (char *)s->coded[GP_STRUCT_STATE].text;
	open->no_master = s->no_master;
	open->codec_act_up = (char *)s->codec[GP_ACT_UP].text;
	open->codec_act_down = (char *)s->codec[GP_ACT_DOWN].text;
	open->codec_grad_up = (char *)s->codec[GP_GRAD_UP].text;
	open->codec_grad_down = (char *)s->codec[GP_GRAD_DOWN].text;
	open->ladder_act_up = (char *)s->ladder[GP_ACT_UP].text;
	open->ladder_act_down = (char *)s->ladder[GP_ACT_DOWN].text;
	open->ladder_grad_up = (char *)s->ladder[GP_GRAD_UP].text;
	open->ladder_grad_down = (char *)s->ladder[GP_GRAD_DOWN].text;
	open->survey_every = s->survey_every;
	open->data_inputs = s->data_inputs;
	open->frozen_inputs = s->frozen_inputs;
}

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

static enum gp_status read_codecs(const Gpsplit__Open *m, struct gp_codec_spec codec[GP_DIRECTIONS], struct gp_err *err)
{
	const char *const text[GP_DIRECTIONS] = {[GP_ACT_UP] = m->codec_act_up,
						 [GP_ACT_DOWN] = m->codec_act_down,
						 [GP_GRAD_UP] = m->codec_grad_up,
						 [GP_GRAD_DOWN] = m->codec_grad_down};
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		char what[32];
		snprintf(what, sizeof what, "codec_%s", gp_direction_info[d].name);
		if (gp_codec_spec_parse(text[d], &codec[d], err) != GP_OK)
			return refuse_open(err, what);
	}
	return GP_OK;
}

static enum gp_status read_ladder(enum gp_direction d, const char *text, struct gp_session_spec *out,
				  struct gp_err *err)
{
	char what[32];
	snprintf(what, sizeof what, "ladder_%s", gp_direction_info[d].name);
	if (!text[0])
		return GP_OK;
	if (gp_codec_ladder_parse(text, &out->ladder[d], err) != GP_OK)
		return refuse_open(err, what);
	if (out->eval_only)
		GP_FAIL(err, GP_INVALID, "open: %s in a session that evaluates alone", what);
	if (gp_codec_ladder_find(&out->ladder[d], &out->codec[d]) < 0)
		GP_FAIL(err, GP_INVALID, "open: %s does not have codec_%s, %s", what, gp_direction_info[d].name,
			out->codec[d].text);
	return GP_OK;
}

static enum gp_status read_ladders(const Gpsplit__Open *m, struct gp_session_spec *out, struct gp_err *err)
{
	GP_TRY(read_ladder(GP_ACT_UP, m->ladder_act_up, out, err));
	GP_TRY(read_ladder(GP_ACT_DOWN, m->ladder_act_down, out, err));
	GP_TRY(read_ladder(GP_GRAD_UP, m->ladder_grad_up, out, err));
	GP_TRY(read_ladder(GP_GRAD_DOWN, m->ladder_grad_down, out, err));
	out->survey_every = gp_session_has_ladder(out) ? m->survey_every : 0;
	return GP_OK;
}

static enum gp_status read_maps(const char *text, struct gp_session_spec *out, struct gp_err *err)
{
	if (!text[0] || out->eval_only)
		return GP_OK;
	if (gp_codec_spec_parse(text, &out->maps, err) != GP_OK || gp_store_check(&out->maps, false, err) != GP_OK)
		return refuse_open(err, "maps");
	if (out->recompute)
		GP_FAIL(err, GP_UNSUPPORTED, "open: maps and recompute exclude each other");
	return GP_OK;
}

static enum gp_status read_coded(const Gpsplit__Open *m, struct gp_session_spec *out, struct gp_err *err)
{
	const char *const text[GP_STRUCTS] = {[GP_STRUCT_GRAD_MAPS] = m->grad_maps,
					      [GP_STRUCT_WEIGHTS] = m->weights_codec,
					      [GP_STRUCT_WEIGHT_GRADS] = m->weight_grads,
					      [GP_STRUCT_STATE] = m->state};
	for (int i = 0; i < GP_STRUCTS && !out->eval_only; i++) {
		struct gp_codec_spec *spec = &out->coded[i];
		if (!text[i][0])
			continue;
		if (gp_codec_spec_parse(text[i], spec, err) != GP_OK ||
		    gp_store_check(spec, i == GP_STRUCT_STATE, err) != GP_OK)
			return refuse_open(err, gp_structure_name[i]);
	}
	out->no_master = m->no_master && out->coded[GP_STRUCT_WEIGHTS].stages > 0;
	return GP_OK;
}

static enum gp_status read_precision(uint32_t number, enum gp_precision *out, struct gp_err *err)
{
	if (number >= GP_PRECISIONS)
		GP_FAIL(err, GP_UNSUPPORTED, "open: this server knows no precision %u", number);
	*out = (enum gp_precision)number;
	return GP_OK;
}

static enum gp_status read_name(const char *text, char name[GP_NAME_MAX], struct gp_err *err)
{
	if (strlen(text) >= GP_NAME_MAX)
		GP_FAIL(err, GP_INVALID, "open: decay: the name of a node has %zu characters; at most %d are possible",
			strlen(text), GP_NAME_MAX - 1);
	strcpy(name, text);
	return GP_OK;
}

/* Whether the numbers can be depends on the graph. */
static enum gp_status read_decays(const Gpsplit__Open *m, struct gp_decays *out, struct gp_err *err)
{
	if (m->n_decay > GP_DECAYS_MAX)
		GP_FAIL(err, GP_INVALID, "open: %zu decays; at most %d are possible", m->n_decay, GP_DECAYS_MAX);
	for (size_t i = 0; i < m->n_decay; i++) {
		const Gpsplit__Decay *from = m->decay[i];
		struct gp_decay *d = &out->decay[i];
		*d = (struct gp_decay){.rate = from->rate, .every = from->every, .times = from->times, .l1 = from->l1};
		GP_TRY(read_name(from->encoder, d->encoder, err));
		GP_TRY(read_name(from->decoder, d->decoder, err));
	}
	out->count = (int)m->n_decay;
	if (m->eval_only && out->count > 0)
		GP_FAIL(err, GP_INVALID, "open: decays in a session that evaluates alone");
	return GP_OK;
}

enum gp_status gp_session_spec_read(const Gpsplit__Open *open, int64_t window_max, struct gp_session_spec *out,
				    struct gp_err *err)
{
	GP_TRY(check_range("window", open->window, (uint32_t)window_max, err));
	GP_TRY(check_range("chunks", open->chunks, CHUNKS_MAX, err));
	GP_TRY(check_range("chunk_samples", open->chunk_samples, CHUNK_SAMPLES_MAX, err));
	*out = (struct gp_session_spec){.seed = open->seed,
					.chunk_samples = (int)open->chunk_samples,
					.chunks = (int)open->chunks,
					.window = (int)open->window,
					.eval_only = open->eval_only,
					.calibrates = open->calibrates,
					.lengths = open->lengths,
					.recompute = open->recompute && !open->eval_only,
					.choose_precision = open->choose_precision,
					.data_inputs = open->data_inputs,
					.frozen_inputs = open->frozen_inputs};
	GP_TRY(read_optimizer(open->optimizer, &out->optim, err));
	GP_TRY(read_codecs(open, out->codec, err));
	GP_TRY(read_ladders(open, out, err));
	GP_TRY(read_decays(open, &out->decays, err));
	GP_TRY(read_maps(open->maps, out, err));
	if (open->choose_precision && (open->restore_step > 0 || open->precision != GP_PRECISION_FP32))
		GP_FAIL(err, GP_INVALID, "open: choose_precision in a session that has a precision already");
	GP_TRY(read_coded(open, out, err));
	return read_precision(open->precision, &out->precision, err);
}

/* To words. */

static void add_text(struct gp_session_words *w, const char *key, const char *value)
{
	char *text = w->text[w->pairs.count];
	snprintf(text, sizeof w->text[0], "%s", value);
	gp_pairs_add(&w->pairs, key, text);
}

static void add_number(struct gp_session_words *w, const char *key, uint64_t value)
{
	char text[24];
	snprintf(text, sizeof text, "%" PRIu64, value);
	add_text(w, key, text);
}

static void add_real(struct gp_session_words *w, const char *key, double value)
{
	char text[32];
	snprintf(text, sizeof text, "%.17g", value);
	add_text(w, key, text);
}

static void add_optimizer(struct gp_session_words *w, const struct gp_optim *o)
{
	add_number(w, "optimizer", (uint64_t)o->kind);
	add_real(w, "momentum", (double)o->momentum);
	add_number(w, "nesterov", o->nesterov);
	add_real(w, "weight_decay", (double)o->weight_decay);
	add_real(w, "beta1", o->beta1);
	add_real(w, "beta2", o->beta2);
	add_real(w, "eps", (double)o->eps);
	add_real(w, "clip_norm", o->clip_norm);
	add_real(w, "clip_value", o->clip_value);
}

/* A run without them has the words of older ones. */
static void add_decays(struct gp_session_words *w, const struct gp_decays *d)
{
	char all[GP_DECAYS_MAX * (2 * GP_NAME_MAX + 80)] = "", text[24];
	size_t len = 0;
	for (int i = 0; i < d->count; i++) {
		const struct gp_decay *k = &d->decay[i];
		len += (size_t)snprintf(all + len, sizeof all - len, "%s %s %.17g %u %u %.9g\n", k->encoder, k->decoder,
					k->rate, k->every, k->times, (double)k->l1);
	}
	snprintf(text, sizeof text, "%016" PRIx64, gp_frame_checksum((const uint8_t *)all, len));
	if (d->count > 0)
		add_text(w, "decay", text);
}

/* Which rung is used is the client's to say, each time. */
static void add_codec(struct gp_session_words *w, const struct gp_session_spec *s, enum gp_direction d)
{
	const struct gp_codec_ladder *l = &s->ladder[d];
	char text[32];
	snprintf(text, sizeof text, "ladder %016" PRIx64, gp_frame_checksum((const uint8_t *)l->text, strlen(l->text)));
	add_text(w, gp_direction_info[d].name, l->rungs > 0 ? text : s->codec[d].text);
}

enum gp_status gp_session_spec_describe(const struct gp_session_spec *s, const struct gp_graph *body,
					struct gp_session_words *out, struct gp_err *err)
{
	uint64_t hash;
	char text[24];
	GP_TRY(gp_graph_hash(body, &hash, err));
	out->pairs.count = 0;
	snprintf(text, sizeof text, "%016" PRIx64, hash);
	add_text(out, "graph", text);
	add_optimizer(out, &s->optim);
	add_number(out, "seed", s->seed);
	add_number(out, "chunk_samples", (uint64_t)s->chunk_samples);
	add_number(out, "chunks", (uint64_t)s->chunks);
	add_number(out, "precision", (uint64_t)s->precision);
	for (int d = 0; d < GP_DIRECTIONS; d++)
		add_codec(out, s, (enum gp_direction)d);
	add_number(out, "data_inputs", s->data_inputs);
	add_number(out, "frozen_inputs", s->frozen_inputs);
	add_decays(out, &s->decays);
	if (s->maps.stages > 0) /* a run without has the words of older ones */
		add_text(out, "maps", s->maps.text);
	for (int i = 0; i < GP_STRUCTS; i++)
		if (s->coded[i].stages > 0)
			add_text(out, gp_structure_name[i], s->coded[i].text);
	if (s->no_master)
		add_text(out, "weights-master", "off");
	return GP_OK;
}
