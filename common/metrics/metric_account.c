/* SPDX-License-Identifier: Apache-2.0
 *
 * See metric_account.h. Test: tests/unit/test_metrics_show.c
 */
#include "common/metrics/metric_account.h"

static bool goes_up(enum gp_frame_type k)
{
	return k == GP_FRAME_ACT_UP || k == GP_FRAME_GRAD_UP || k == GP_FRAME_PARAM_UP || k == GP_FRAME_PROBE_UP;
}

/* Activations and gradients, whose stages are told. */
static bool has_stages(enum gp_frame_type k)
{
	return k == GP_FRAME_ACT_UP || k == GP_FRAME_ACT_DOWN || k == GP_FRAME_GRAD_UP || k == GP_FRAME_GRAD_DOWN;
}

static const struct gp_kind_account *kind_of(const struct gp_metric_link *l, enum gp_frame_type k)
{
	return goes_up(k) ? &l->up->kind[k] : &l->down->kind[k];
}

void gp_row_wire_bytes(const struct gp_metric_row *row, const struct gp_metric_link *l)
{
	gp_row_count_of(row, "way", "up", l->up->wire_bytes);
	gp_row_count_of(row, "way", "down", l->down->wire_bytes);
}

void gp_row_kernel_bytes(const struct gp_metric_row *row, const struct gp_tcp_figures *tcp, bool at_client)
{
	if (!tcp->valid)
		return;
	gp_row_count_of(row, "way", "up", at_client ? tcp->bytes_acked : tcp->bytes_received);
	gp_row_count_of(row, "way", "down", at_client ? tcp->bytes_received : tcp->bytes_acked);
}

void gp_row_frame_bytes(const struct gp_metric_row *row, const struct gp_metric_link *l)
{
	for (enum gp_frame_type k = GP_FRAME_ACT_UP; k < GP_FRAME_TYPE_COUNT; k++) {
		const struct gp_kind_account *a = kind_of(l, k);
		const struct gp_metric_row kind = gp_row_with(row, "kind", gp_frame_type_name(k));
		gp_row_count_of(&kind, "form", "tensor", a->tensor_bytes);
		gp_row_count_of(&kind, "form", "payload", a->payload_bytes);
		gp_row_count_of(&kind, "form", "wire", a->wire_bytes);
		if (has_stages(k) && goes_up(k) != l->at_client)
			gp_row_count_of(&kind, "form", "timed", a->timed_bytes);
	}
}

void gp_row_frames(const struct gp_metric_row *row, const struct gp_metric_link *l)
{
	for (enum gp_frame_type k = GP_FRAME_ACT_UP; k < GP_FRAME_TYPE_COUNT; k++)
		gp_row_count_of(row, "kind", gp_frame_type_name(k), kind_of(l, k)->frames);
}

static void put_other_way(const struct gp_metric_row *row, const char *way, const struct gp_dir_account *d)
{
	const struct gp_metric_row more = gp_row_with(row, "way", way);
	gp_row_count_of(&more, "what", "control", d->control_bytes);
	gp_row_count_of(&more, "what", "heartbeat", d->heartbeat_bytes);
	gp_row_count_of(&more, "what", "preface", d->preface_bytes);
}

void gp_row_other_bytes(const struct gp_metric_row *row, const struct gp_metric_link *l)
{
	put_other_way(row, "up", l->up);
	put_other_way(row, "down", l->down);
}

static const char *const stage_names[GP_STAGE_COUNT] = {
	[GP_STAGE_COMPUTE] = "compute", [GP_STAGE_ENCODE] = "encode", [GP_STAGE_QUEUE] = "queue",
	[GP_STAGE_WIRE] = "wire",       [GP_STAGE_DECODE] = "decode", [GP_STAGE_WAIT] = "wait"};

void gp_row_stages(const struct gp_metric_row *row, const struct gp_metric_link *l)
{
	for (enum gp_frame_type k = GP_FRAME_ACT_UP; k < GP_FRAME_TYPE_COUNT; k++) {
		if (!has_stages(k))
			continue;
		const bool sender = goes_up(k) == l->at_client;
		const struct gp_metric_row kind = gp_row_with(row, "kind", gp_frame_type_name(k));
		for (enum gp_stage s = 0; s < GP_STAGE_COUNT; s++) {
			const struct gp_metric_row stage = gp_row_with(&kind, "stage", stage_names[s]);
			if (gp_stage_is_here(s, sender))
				gp_row_seconds(&stage, kind_of(l, k)->stage_ns[s]);
		}
	}
}
