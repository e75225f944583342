/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_report.h. Test: tests/e2e/plan.sh
 */
#include "client/plan/plan_report.h"

#include <string.h>

#include "client/costs/partitions.h"
#include "client/job/compress.h"

static const char *const bound_words[GP_BOUND_COUNT] = {
	[GP_BOUND_UP_WIRE] = "the way up",
	[GP_BOUND_DOWN_WIRE] = "the way down",
	[GP_BOUND_HEAD] = "computing the head here",
	[GP_BOUND_BODY] = "computing the body on the server",
	[GP_BOUND_TAIL] = "computing the tail here",
	[GP_BOUND_CODEC] = "the codecs",
	[GP_BOUND_LATENCY] = "the latency of the link",
	[GP_BOUND_OTHERS] = "other sessions on the server",
};

/* Short texts by value, so that several fit into one printf. */
struct text {
	char s[GP_CODEC_SPEC_MAX];
};

static struct text time_text(double s)
{
	struct text t;
	if (s < 0.995e-3)
		snprintf(t.s, sizeof t.s, "%.3g us", s * 1e6);
	else if (s < 0.0995)
		snprintf(t.s, sizeof t.s, "%.3g ms", s * 1e3);
	else
		snprintf(t.s, sizeof t.s, "%.3g s", s);
	return t;
}

static struct text bytes_text(double bytes)
{
	struct text t;
	if (bytes < 1e5)
		snprintf(t.s, sizeof t.s, "%.2f kB", bytes / 1e3);
	else
		snprintf(t.s, sizeof t.s, "%.2f MB", bytes / 1e6);
	return t;
}

static struct text cut_text(const struct gp_plan_report *r, const struct gp_plan_row *row)
{
	struct text t;
	char cut[24];
	snprintf(t.s, sizeof t.s, "%s", gp_partition_text(r->study->world.graph, &r->study->cut[row->pick.cut], cut));
	return t;
}

static const struct gp_plan_codec_set *codec_of(const struct gp_plan_report *r, const struct gp_plan_row *row)
{
	return &r->study->codec[row->pick.codec];
}

static int chunks_of(const struct gp_plan_report *r, const struct gp_plan_row *row)
{
	return r->study->chunks[row->pick.chunking];
}

/* The first row that is possible. */
static const struct gp_plan_row *best_of(const struct gp_plan_ranking *r)
{
	for (int i = 0; i < r->rows; i++)
		if (!r->row[i].struck[0])
			return &r->row[i];
	return NULL;
}

const char *gp_plan_sentence(const struct gp_plan_report *r, const struct gp_plan_row *row, char text[GP_PLAN_SENTENCE])
{
	const struct gp_plan_time *t = &row->prediction.time;
	const int chunks = chunks_of(r, row);
	snprintf(text, GP_PLAN_SENTENCE, "Cut at %s with %s in %d chunk%s: %s a batch, bound by %s.",
		 cut_text(r, row).s, codec_of(r, row)->text, chunks, chunks == 1 ? "" : "s",
		 time_text(t->time_per_batch_s).s,
		 t->bound.steps ? bound_words[gp_bound_by_largest(&t->bound)] : "something that is not known");
	return text;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static void print_world(const struct gp_plan_report *r, FILE *to)
{
	const struct gp_plan_world *w = &r->study->world;
	const struct gp_plan_speed *v = &w->server;
	char link[GP_PLAN_LINK_TEXT], compress[GP_COMPRESS_TEXT];
	fprintf(to, "%s, batch %d, %d thread%s here\n", r->model, r->study->batch, w->threads,
		w->threads == 1 ? "" : "s");
	fprintf(to, "link      %s (%s)\n", gp_plan_link_text(&w->link, link), r->link_measured ? "measured" : "given");
	if (r->study->served)
		fprintf(to, "server    %s, %s: %.3g times as fast as here forward, %.3g backward, %.3g with codecs\n",
			r->server, r->study->server.device, v->forward, v->backward, v->codec);
	else if (v->forward != 1)
		fprintf(to, "server    taken for %.3g times as fast as this machine\n", v->forward);
	else
		fprintf(to, "server    taken for as fast as this machine\n");
	if (w->same_machine)
		fprintf(to, "          both ends on this machine, with %.0f processor%s between them\n", w->processors,
			w->processors == 1 ? "" : "s");
	if (w->session.recompute)
		fprintf(to, "maps      computed a second time (--recompute)\n");
	if (gp_compress_text(&w->session, compress)[0])
		fprintf(to, "memory    --compress %s\n", compress);
	if (r->padded)
		fprintf(to, "note: texts are predicted with all of their positions; shorter ones take less\n");
}

static void print_flows(const struct gp_prediction *p, FILE *to)
{
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const struct gp_plan_flow *f = &p->schedule.flow[d];
		if (!f->crosses)
			continue;
		fprintf(to, "%-10s%s of tensors travel as %s; a chunk takes %s to encode, %s to decode\n",
			gp_direction_info[d].name, bytes_text(p->tensor_bytes[d]).s, bytes_text(p->payload_bytes[d]).s,
			time_text(f->encode_s).s, time_text(f->decode_s).s);
	}
}

static void print_parts(const struct gp_plan_report *r, const struct gp_plan_row *row, FILE *to)
{
	const struct gp_prediction *p = &row->prediction;
	const struct gp_plan_schedule *s = &p->schedule;
	char bound[GP_BOUND_BY_TEXT];
	fprintf(to, "cut       %s, %d chunks of %d, %d in flight\n", cut_text(r, row).s, s->chunks,
		r->study->batch / s->chunks, p->window);
	fprintf(to, "a chunk   head %s forward, %s backward; body %s and %s; tail %s\n", time_text(s->head_forward_s).s,
		time_text(s->head_backward_s).s, time_text(s->body_forward_s).s, time_text(s->body_backward_s).s,
		time_text(s->tail_s).s);
	print_flows(p, to);
	fprintf(to, "wire      %s up, %s down a batch\n", bytes_text(p->wire_up_bytes).s,
		bytes_text(p->wire_down_bytes).s);
	if (r->study->world.link.byte_s > 0)
		fprintf(to, "          %.3g ns of a processor for each byte, at either end\n",
			r->study->world.link.byte_s * 1e9);
	fprintf(to, "memory    %.0f MiB here, %.0f MiB on the server (plans, frames and codecs)\n",
		(double)p->client_memory_bytes / 0x1p20, (double)p->server_memory_bytes / 0x1p20);
	if (row->struck[0])
		fprintf(to, "          does not fit: %s\n", row->struck);
	fprintf(to, "a batch   %s: %s\n", time_text(p->time.time_per_batch_s).s,
		gp_bound_by_text(&p->time.bound, bound));
}

static void print_table(const struct gp_plan_report *r, FILE *to)
{
	int width = 5;
	for (int i = 0; i < r->ranking->rows; i++)
		if ((int)strlen(codec_of(r, &r->ranking->row[i])->text) > width)
			width = (int)strlen(codec_of(r, &r->ranking->row[i])->text);
	fprintf(to, "%9s %8s %7s %-*s %10s %10s %9s %9s %8s  %s\n", "a batch", "cut", "chunks", width, "codec", "up",
		"down", "MiB here", "MiB there", "error", "bound by");
	for (int i = 0; i < r->ranking->rows; i++) {
		const struct gp_plan_row *row = &r->ranking->row[i];
		const struct gp_prediction *p = &row->prediction;
		fprintf(to, "%9s %8s %7d %-*s %10s %10s %9.0f %9.0f %8.2g  %s%s%s\n",
			time_text(p->time.time_per_batch_s).s, cut_text(r, row).s, chunks_of(r, row), width,
			codec_of(r, row)->text, bytes_text(p->wire_up_bytes).s, bytes_text(p->wire_down_bytes).s,
			(double)p->client_memory_bytes / 0x1p20, (double)p->server_memory_bytes / 0x1p20, p->rel_err,
			p->time.bound.steps ? gp_bound_name(gp_bound_by_largest(&p->time.bound)) : "-",
			row->struck[0] ? "; not possible: " : "", row->struck);
	}
}

static void print_ranking(const struct gp_plan_report *r, FILE *to)
{
	const struct gp_plan_ranking *k = r->ranking;
	print_table(r, to);
	fprintf(to, "%d choices: the %d fastest are shown", k->choices, k->rows);
	if (k->misfits)
		fprintf(to, "; in %d the codec does not fit a tensor", k->misfits);
	if (k->lossy)
		fprintf(to, "; in %d the codec loses more than --max-error allows", k->lossy);
	fputs("\n", to);
}

const char *gp_plan_report_obstacle(const struct gp_plan_report *r)
{
	return r->ranking->rows ? r->ranking->row[0].struck : "no codec fits, or all lose too much";
}

void gp_plan_report_print(const struct gp_plan_report *r, FILE *to)
{
	const struct gp_plan_row *best = best_of(r->ranking);
	char text[GP_PLAN_SENTENCE];
	print_world(r, to);
	if (r->swept)
		print_ranking(r, to);
	else
		print_parts(r, &r->ranking->row[0], to);
	if (best)
		fprintf(to, "%s\n", gp_plan_sentence(r, best, text));
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *codec_json(const struct gp_plan_codec_set *set)
{
	if (set->same)
		return json_string(set->spec[0].text);
	json_t *o = json_object();
	for (int d = 0; d < GP_DIRECTIONS; d++)
		json_object_set_new(o, gp_direction_info[d].name, json_string(set->spec[d].text));
	return o;
}

static json_t *parts_json(const struct gp_prediction *p)
{
	const struct gp_plan_schedule *s = &p->schedule;
	json_t *o = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "head_forward_s", s->head_forward_s,
			      "head_backward_s", s->head_backward_s, "body_forward_s", s->body_forward_s,
			      "body_backward_s", s->body_backward_s, "tail_s", s->tail_s, "update_s", s->update_s,
			      "body_update_s", s->body_update_s);
	json_object_set_new(o, "batch_s", json_real(s->load_s));
	for (int d = 0; o && d < GP_DIRECTIONS; d++) {
		const struct gp_plan_flow *f = &s->flow[d];
		if (f->crosses)
			json_object_set_new(o, gp_direction_info[d].name,
					    json_pack("{s:f, s:f, s:f, s:f, s:f}", "tensor_bytes", p->tensor_bytes[d],
						      "payload_bytes", p->payload_bytes[d], "wire_bytes",
						      f->wire_bytes * s->chunks, "encode_s", f->encode_s, "decode_s",
						      f->decode_s));
	}
	return o;
}

static json_t *link_json(const struct gp_plan_link *l, bool measured)
{
	return json_pack("{s:f, s:f, s:f, s:f, s:f, s:o, s:b}", "up_bps", l->up.bytes_per_s * 8, "down_bps",
			 l->down.bytes_per_s * 8, "round_trip_s", l->up.delay_s + l->down.delay_s, "queue_up_bytes",
			 l->up.queue_bytes, "queue_down_bytes", l->down.queue_bytes, "byte_s",
			 l->byte_s > 0 ? json_real(l->byte_s) : json_null(), "measured", measured);
}

static json_t *memory_json(uint64_t bytes)
{
	return bytes > 0 ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *compress_json(const struct gp_session_spec *s)
{
	char text[GP_COMPRESS_TEXT];
	return gp_compress_text(s, text)[0] ? json_string(text) : json_null();
}

static json_t *row_json(const struct gp_plan_report *r, const struct gp_plan_row *row)
{
	const struct gp_prediction *p = &row->prediction;
	const struct gp_plan_world *w = &r->study->world;
	char text[GP_PLAN_SENTENCE];
	json_t *o = json_pack("{s:s, s:s, s:o, s:i, s:i, s:i}", "model", r->model, "cut", cut_text(r, row).s, "codec",
			      codec_json(codec_of(r, row)), "batch", r->study->batch, "chunks", chunks_of(r, row),
			      "window", p->window);
	if (!o)
		return NULL;
	json_object_set_new(o, "time_per_batch_s", json_real(p->time.time_per_batch_s));
	json_object_set_new(o, "bound_by", gp_bound_by_json(&p->time.bound, true));
	json_object_set_new(o, "wire_up_bytes", json_integer((json_int_t)p->wire_up_bytes));
	json_object_set_new(o, "wire_down_bytes", json_integer((json_int_t)p->wire_down_bytes));
	json_object_set_new(o, "client_memory_bytes", memory_json(p->client_memory_bytes));
	json_object_set_new(o, "server_memory_bytes", memory_json(p->server_memory_bytes));
	json_object_set_new(o, "rel_err", json_real(p->rel_err));
	json_object_set_new(o, "recompute", json_boolean(w->session.recompute));
	json_object_set_new(o, "compress", compress_json(&w->session));
	json_object_set_new(o, "possible", json_boolean(!row->struck[0]));
	json_object_set_new(o, "why_not", row->struck[0] ? json_string(row->struck) : json_null());
	json_object_set_new(o, "parts", parts_json(p));
	json_object_set_new(o, "link", link_json(&w->link, r->link_measured));
	json_object_set_new(o, "server_speed",
			    json_pack("{s:f, s:f, s:f, s:b}", "forward", w->server.forward, "backward",
				      w->server.backward, "codec", w->server.codec, "measured", r->study->served));
	json_object_set_new(o, "same_machine", json_boolean(w->same_machine));
	json_object_set_new(o, "sentence", json_string(gp_plan_sentence(r, row, text)));
	return o;
}

json_t *gp_plan_report_json(const struct gp_plan_report *r)
{
	if (!r->swept)
		return row_json(r, &r->ranking->row[0]);
	json_t *a = json_array();
	for (int i = 0; a && i < r->ranking->rows; i++)
		json_array_append_new(a, row_json(r, &r->ranking->row[i]));
	return a;
}
