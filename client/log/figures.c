/* SPDX-License-Identifier: Apache-2.0
 *
 * See figures.h. Test: tests/e2e/eval_infer.sh
 */
#include "client/log/figures.h"

#include <math.h>

#include "client/codecs/codec_events.h"
#include "client/engine/crossing.h"
#include "common/base/mem.h"
#include "common/wire/control.h"
#include "common/wire/flows.h"

static void add_bytes_of(struct gp_kind_account *sum, const struct gp_kind_account *k)
{
	sum->tensor_bytes += k->tensor_bytes;
	sum->uncompressed_bytes += k->uncompressed_bytes;
	sum->payload_bytes += k->payload_bytes;
	sum->padding_bytes += k->padding_bytes;
}

/* Payload bytes divided by the bytes that would cross the same cut without codec and insertion; NaN where nothing crossed. */
static double rate_of(const struct gp_kind_account *k)
{
	return k->uncompressed_bytes ? (double)k->payload_bytes / (double)k->uncompressed_bytes : NAN;
}

static void print_link(const struct gp_account *part, double batches, FILE *to)
{
	char inserted[64] = "", unpadded[64] = "";
	struct gp_kind_account sum = {0};
	for (int i = 0; i < GP_FRAME_TYPE_COUNT; i++) {
		add_bytes_of(&sum, &part->sent.kind[i]);
		add_bytes_of(&sum, &part->received.kind[i]);
	}
	if (sum.payload_bytes == 0)
		return;
	if (sum.uncompressed_bytes != sum.tensor_bytes)
		snprintf(inserted, sizeof inserted, ", rate %.4f: behind the insertions %.2f MB", rate_of(&sum),
			 (double)sum.tensor_bytes / batches * 1e-6);
	if (sum.padding_bytes > 0)
		snprintf(unpadded, sizeof unpadded, "; %.2fx without padding",
			 (double)(sum.tensor_bytes - sum.padding_bytes) / (double)sum.payload_bytes);
	fprintf(to,
		"per batch %.2f MB of tensors travelled as %.2f MB (%.2fx smaller%s%s); "
		"on the wire %.2f MB up, %.2f MB down\n",
		(double)sum.uncompressed_bytes / batches * 1e-6, (double)sum.payload_bytes / batches * 1e-6,
		(double)sum.uncompressed_bytes / (double)sum.payload_bytes, inserted, unpadded,
		(double)part->sent.wire_bytes / batches * 1e-6, (double)part->received.wire_bytes / batches * 1e-6);
}

struct gp_link_rate gp_link_rate(const struct gp_tcp_figures *before, const struct gp_tcp_figures *now, double seconds)
{
	if (!now->valid || seconds <= 0)
		return (struct gp_link_rate){NAN, NAN};
	return (struct gp_link_rate){(double)(now->bytes_acked - before->bytes_acked) / seconds,
				     (double)(now->bytes_received - before->bytes_received) / seconds};
}

/* Rates are those of the whole run, evaluations included; `part`: what crossed in training steps, for the bandwidth. The
 * kernel's bytes are compared with ours over all connections, their opening included. */
static void print_rate(const struct gp_engine_figures *f, const struct gp_account *part, FILE *to)
{
	const double bandwidth = gp_dir_bandwidth(&part->received);
	double up, down;
	if (!f->tcp.valid || !isfinite(f->rate.up) || !isfinite(f->rate.down))
		return;
	fprintf(to, "acknowledged on average %.2f MB/s up, %.2f MB/s down", f->rate.up * 1e-6, f->rate.down * 1e-6);
	if (isfinite(bandwidth))
		fprintf(to, " (%.2f MB/s while tensors came in)", bandwidth * 1e-6);
	gp_account_kernel_diff(&f->account, &f->tcp, &up, &down);
	fprintf(to,
		"; round trip %.1f ms; the kernel's counts of bytes differ from ours by %+.3f %% up, %+.3f %% down\n",
		f->rtt_us * 1e-3, 100 * up, 100 * down);
}

static uint64_t raw_fallbacks(const struct gp_engine_figures *f)
{
	uint64_t sum = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		sum += f->codec[d].raw_fallbacks;
	return sum;
}

/* Payloads of an evaluation count, too, as they do in the sums of bytes. */
static void print_skipped(const struct gp_engine_figures *f, FILE *to)
{
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < GP_CODEC_MAX_STAGES && f->byte_stage[d][i]; i++)
			if (f->codec[d].skipped[i] > 0)
				fprintf(to, "%s did not pay and was skipped for %llu of %llu payloads of %s\n",
					f->byte_stage[d][i], (unsigned long long)f->codec[d].skipped[i],
					(unsigned long long)(f->codec[d].encoded + f->codec[d].decoded),
					gp_direction_info[d].name);
}

static void print_server_device(const struct gp_engine_figures *f, FILE *to)
{
	if (!f->server_device || !f->server_device[0])
		return;
	fprintf(to, " on %s", f->server_device);
	if (f->server_device_bytes > 0)
		fprintf(to, " %.0f MiB", (double)f->server_device_bytes / 1048576);
}

static void print_precision(const struct gp_engine_figures *f, FILE *to)
{
	if (f->client_precision == f->precision)
		fprintf(to, "; %s\n", gp_precision_name(f->precision));
	else
		fprintf(to, "; %s on the server, %s here\n", gp_precision_name(f->precision),
			gp_precision_name(f->client_precision));
}

void gp_figures_print(const struct gp_engine_figures *f, const struct gp_account *part, uint64_t batches, FILE *to)
{
	print_link(part, batches ? (double)batches : 1, to);
	print_rate(f, part, to);
	fprintf(to, "memory: peak %.0f MiB here (plans and frames %.0f MiB)", (double)gp_mem_peak_rss_bytes() / 1048576,
		(double)f->memory_bytes / 1048576);
	if (f->server_memory_bytes > 0)
		fprintf(to, ", session on the server %.0f MiB", (double)f->server_memory_bytes / 1048576);
	print_server_device(f, to);
	print_precision(f, to);
	if (f->of_several)
		fprintf(to, "the last server was %s\n", f->server);
	if (raw_fallbacks(f) > 0)
		fprintf(to, "%llu tensors were not finite and travelled raw\n", (unsigned long long)raw_fallbacks(f));
	if (f->reconnects > 0)
		fprintf(to, "the link broke, and was replaced by another, %u %s\n", f->reconnects,
			f->reconnects == 1 ? "time" : "times");
	print_skipped(f, to);
	gp_codec_use_print(f->codec_use, to);
}

/* Sums over everything that was sent; per batch: over `part` alone. */
static json_t *kind_json(const struct gp_kind_account *k, const struct gp_kind_account *part, uint64_t batches)
{
	double n = batches ? (double)batches : 1;
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:f, s:f, s:f, s:f}", "tensor_bytes",
			 (json_int_t)k->tensor_bytes, "uncompressed_bytes", (json_int_t)k->uncompressed_bytes,
			 "unpadded_bytes", (json_int_t)(k->tensor_bytes - k->padding_bytes), "payload_bytes",
			 (json_int_t)k->payload_bytes, "wire_bytes", (json_int_t)k->wire_bytes, "frames",
			 (json_int_t)k->frames, "rate", gp_json_number(rate_of(part)), "uncompressed_bytes_per_batch",
			 (double)part->uncompressed_bytes / n, "tensor_bytes_per_batch", (double)part->tensor_bytes / n,
			 "unpadded_bytes_per_batch", (double)(part->tensor_bytes - part->padding_bytes) / n,
			 "payload_bytes_per_batch", (double)part->payload_bytes / n, "wire_bytes_per_batch",
			 (double)part->wire_bytes / n);
}

static json_t *count_or_null(bool known, uint64_t n)
{
	return known ? json_integer((json_int_t)n) : json_null();
}

static json_t *number_or_null(bool known, double x)
{
	return known ? gp_json_number(x) : json_null();
}

/* Keys of what a link carries: without one, each is null. */
static void add_bytes(json_t *o, const struct gp_engine_figures *f, const struct gp_account *part, uint64_t batches)
{
	const struct gp_account *a = &f->account;
	const bool linked = f->flows != NULL, tcp = f->tcp.valid;
	struct gp_kind_account sum = {0};
	double up = 0, down = 0;
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const struct gp_direction_info *way = &gp_direction_info[d];
		const enum gp_frame_type kind = way->frame;
		const struct gp_kind_account *all = way->up ? &a->sent.kind[kind] : &a->received.kind[kind];
		const struct gp_kind_account *of = way->up ? &part->sent.kind[kind] : &part->received.kind[kind];
		json_object_set_new(o, way->name, linked ? kind_json(all, of, batches) : json_null());
		add_bytes_of(&sum, of);
	}
	json_object_set_new(o, "rate", number_or_null(linked, rate_of(&sum)));
	gp_account_kernel_diff(a, &f->tcp, &up, &down);
	json_object_set_new(o, "wire_up_bytes", count_or_null(linked, a->sent.wire_bytes));
	json_object_set_new(o, "wire_down_bytes", count_or_null(linked, a->received.wire_bytes));
	json_object_set_new(o, "tcp_up_bytes", count_or_null(tcp, f->tcp.bytes_acked));
	json_object_set_new(o, "tcp_down_bytes", count_or_null(tcp, f->tcp.bytes_received));
	json_object_set_new(o, "tcp_up_difference", number_or_null(tcp, up));
	json_object_set_new(o, "tcp_down_difference", number_or_null(tcp, down));
	json_object_set_new(o, "tcp_retransmitted_bytes", count_or_null(tcp, f->tcp.bytes_retransmitted));
	json_object_set_new(o, "up_bytes_per_s", number_or_null(tcp, f->rate.up));
	json_object_set_new(o, "down_bytes_per_s", number_or_null(tcp, f->rate.down));
	json_object_set_new(o, "rtt_us", count_or_null(f->rtt_us > 0, f->rtt_us));
}

/* {"act_up":{"bitshuffle":0,"zstd":40},...}: payloads that went on without the stage; codecs without any are left out. */
static json_t *skipped_json(const struct gp_engine_figures *f)
{
	json_t *all = json_object();
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		json_t *stages = json_object();
		for (int i = 0; i < GP_CODEC_MAX_STAGES && f->byte_stage[d][i]; i++)
			json_object_set_new(stages, f->byte_stage[d][i],
					    json_integer((json_int_t)f->codec[d].skipped[i]));
		if (json_object_size(stages) > 0)
			json_object_set(all, gp_direction_info[d].name, stages);
		json_decref(stages);
	}
	return all;
}

/* [{"direction":"act_up","name":"features.0","dtype":"f32",...},...]: every tensor that crosses a cut, by direction. */
static json_t *tensors_json(const struct gp_engine_figures *f)
{
	json_t *all = json_array();
	for (int d = 0; f->flows && d < GP_DIRECTIONS; d++)
		for (int i = 0; i < f->flows->tensors[d]; i++) {
			const struct gp_flow *flow = &f->flows->flow[d][i];
			const bool input = gp_direction_info[d].at_input;
			const int value = input ? f->body->node[i].first_value : f->body->output[i].value;
			if (!flow->codec)
				continue;
			json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "direction",
							     gp_direction_info[d].name, "name",
							     gp_crossing_name(f->body, (enum gp_direction)d, i),
							     "dtype", gp_dtype_name(f->body->value[value].type.dtype),
							     "frames", (json_int_t)flow->total.frames, "tensor_bytes",
							     (json_int_t)flow->total.tensor_bytes, "uncompressed_bytes",
							     (json_int_t)flow->total.uncompressed_bytes,
							     "unpadded_bytes", (json_int_t)flow->total.row_bytes,
							     "payload_bytes", (json_int_t)flow->total.payload_bytes));
		}
	return all;
}

/* What the server said of itself; NULL and 0 stand for "not known". */
static void add_server(json_t *o, const struct gp_engine_figures *f)
{
	const bool named = f->server_device && f->server_device[0];
	char server[300];
	if (f->server)
		gp_text_sanitize(f->server, server, sizeof server);
	json_object_set_new(o, "server", f->server ? json_string(server) : json_null());
	json_object_set_new(o, "server_memory_bytes",
			    count_or_null(f->server_memory_bytes > 0, f->server_memory_bytes));
	json_object_set_new(o, "server_device", named ? json_string(f->server_device) : json_null());
	json_object_set_new(o, "server_device_memory_bytes",
			    count_or_null(f->server_device_bytes > 0, f->server_device_bytes));
}

/* Seconds by precision; null: none was chosen. */
static json_t *tried_json(bool made, const struct gp_precision_trial *trial)
{
	json_t *o = made ? json_object() : json_null();
	for (int p = 0; made && p < GP_PRECISIONS; p++)
		if (trial->pass_s[p] > 0)
			json_object_set_new(o, gp_precision_name((enum gp_precision)p), json_real(trial->pass_s[p]));
	return o;
}

static void add_rest(json_t *o, const struct gp_engine_figures *f)
{
	const bool linked = f->flows != NULL;
	json_object_set_new(o, "precision", json_string(gp_precision_name(f->precision)));
	json_object_set_new(o, "client_precision", json_string(gp_precision_name(f->client_precision)));
	json_object_set_new(o, "precision_tried", tried_json(f->choice->body_made, &f->choice->body));
	json_object_set_new(o, "client_precision_tried", tried_json(f->choice->client_made, &f->choice->client));
	json_object_set_new(o, "compute_s", json_real((double)f->compute_ns * 1e-9));
	json_object_set_new(o, "memory_peak_bytes", json_integer((json_int_t)gp_mem_peak_rss_bytes()));
	json_object_set_new(o, "memory_bytes", json_integer((json_int_t)f->memory_bytes));
	json_object_set_new(o, "reconnects", count_or_null(linked, f->reconnects));
	json_object_set_new(o, "window", count_or_null(linked, (uint64_t)f->window));
	json_object_set_new(o, "raw_fallbacks", count_or_null(linked, raw_fallbacks(f)));
	json_object_set_new(o, "stages_skipped", linked ? skipped_json(f) : json_null());
	json_object_set_new(o, "codecs_used", gp_codec_use_json(f->codec_use));
	json_object_set_new(o, "tensors", linked ? tensors_json(f) : json_null());
	json_object_set_new(o, "link", linked ? gp_account_json(&f->account) : json_null());
	add_server(o, f);
}

json_t *gp_figures_json(json_t *object, const struct gp_engine_figures *f, const struct gp_account *part,
			uint64_t batches)
{
	if (!object)
		return NULL;
	add_bytes(object, f, part, batches);
	add_rest(object, f);
	return object;
}

json_t *gp_json_number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}
