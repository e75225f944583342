/* SPDX-License-Identifier: Apache-2.0
 *
 * See figures.h. Test: tests/e2e/eval_infer.sh
 */
#include "client/figures.h"

#include <math.h>

#include "common/mem.h"

static void print_link(const struct gp_account *part, double batches, FILE *to)
{
	uint64_t tensor = 0, payload = 0;
	for (int i = 0; i < GP_FRAME_TYPE_COUNT; i++) {
		tensor += part->sent.kind[i].tensor_bytes + part->received.kind[i].tensor_bytes;
		payload += part->sent.kind[i].payload_bytes + part->received.kind[i].payload_bytes;
	}
	if (payload == 0)
		return;
	fprintf(to,
		"per batch %.2f MB of tensors travelled as %.2f MB (%.2fx smaller); on the wire %.2f MB up, %.2f MB "
		"down\n",
		(double)tensor / batches * 1e-6, (double)payload / batches * 1e-6, (double)tensor / (double)payload,
		(double)part->sent.wire_bytes / batches * 1e-6, (double)part->received.wire_bytes / batches * 1e-6);
}

void gp_figures_print(const struct gp_engine_figures *f, const struct gp_account *part, uint64_t batches, FILE *to)
{
	print_link(part, batches ? (double)batches : 1, to);
	fprintf(to, "memory: peak %.0f MiB here (plans and frames %.0f MiB)", (double)gp_mem_peak_rss_bytes() / 1048576,
		(double)f->memory_bytes / 1048576);
	if (f->server_memory_bytes > 0)
		fprintf(to, ", session on the server %.0f MiB", (double)f->server_memory_bytes / 1048576);
	fprintf(to, "; %s\n", gp_precision_name(f->precision));
	if (f->raw_fallbacks > 0)
		fprintf(to, "%llu tensors were not finite and travelled raw\n", (unsigned long long)f->raw_fallbacks);
}

/* Sums over everything that was sent; per batch: over `part` alone. */
static json_t *kind_json(const struct gp_kind_account *k, const struct gp_kind_account *part, uint64_t batches)
{
	double n = batches ? (double)batches : 1;
	return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "tensor_bytes", (json_int_t)k->tensor_bytes,
			 "payload_bytes", (json_int_t)k->payload_bytes, "wire_bytes", (json_int_t)k->wire_bytes,
			 "frames", (json_int_t)k->frames, "tensor_bytes_per_batch", (double)part->tensor_bytes / n,
			 "payload_bytes_per_batch", (double)part->payload_bytes / n, "wire_bytes_per_batch",
			 (double)part->wire_bytes / n);
}

static json_t *bytes_json(const struct gp_engine_figures *f, const struct gp_account *part, uint64_t batches)
{
	const struct gp_account *a = &f->account;
	double up = 0, down = 0;
	gp_account_kernel_diff(a, &f->tcp, &up, &down);
	return json_pack(
		"{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:f, s:f}", "act_up",
		kind_json(&a->sent.kind[GP_FRAME_ACT_UP], &part->sent.kind[GP_FRAME_ACT_UP], batches), "act_down",
		kind_json(&a->received.kind[GP_FRAME_ACT_DOWN], &part->received.kind[GP_FRAME_ACT_DOWN], batches),
		"grad_up", kind_json(&a->sent.kind[GP_FRAME_GRAD_UP], &part->sent.kind[GP_FRAME_GRAD_UP], batches),
		"grad_down",
		kind_json(&a->received.kind[GP_FRAME_GRAD_DOWN], &part->received.kind[GP_FRAME_GRAD_DOWN], batches),
		"wire_up_bytes", (json_int_t)a->sent.wire_bytes, "wire_down_bytes", (json_int_t)a->received.wire_bytes,
		"tcp_up_bytes", (json_int_t)f->tcp.bytes_acked, "tcp_down_bytes", (json_int_t)f->tcp.bytes_received,
		"tcp_up_difference", up, "tcp_down_difference", down);
}

static json_t *rest_json(const struct gp_engine_figures *f)
{
	const struct gp_account *a = &f->account;
	return json_pack(
		"{s:s, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "precision", gp_precision_name(f->precision),
		"up_bytes_per_s", gp_dir_bandwidth(&a->sent), "down_bytes_per_s", gp_dir_bandwidth(&a->received),
		"compute_s", (double)f->compute_ns * 1e-9, "rtt_us", (json_int_t)f->rtt_us, "tcp_retransmitted_bytes",
		(json_int_t)f->tcp.bytes_retransmitted, "raw_fallbacks", (json_int_t)f->raw_fallbacks,
		"memory_peak_bytes", (json_int_t)gp_mem_peak_rss_bytes(), "memory_bytes", (json_int_t)f->memory_bytes,
		"server_memory_bytes", (json_int_t)f->server_memory_bytes, "link", gp_account_json(a));
}

json_t *gp_figures_json(json_t *object, const struct gp_engine_figures *f, const struct gp_account *part,
			uint64_t batches)
{
	json_t *bytes = bytes_json(f, part, batches), *rest = rest_json(f);
	if (!object || !bytes || !rest || json_object_update(object, bytes) != 0 ||
	    json_object_update(object, rest) != 0) {
		json_decref(object);
		object = NULL;
	}
	json_decref(bytes);
	json_decref(rest);
	return object;
}

json_t *gp_json_number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}
