/* SPDX-License-Identifier: Apache-2.0
 *
 * What a link has carried (common/wire/account.h) as samples of Prometheus' text: each function writes the samples of one
 * family, with the labels of `row` and some more. Both programs tell a link in the same words: "up" is to the server.
 *
 *     wire bytes    way
 *     kernel bytes  way: what the peer's kernel has acknowledged, and what this end's has received; no sample where the kernel
 *                   does not tell
 *     frame bytes   kind, form (tensor, payload, wire; timed, of activations and gradients that this end receives: divided by
 *                   the seconds of stage wire they are the bandwidth)
 *     frames        kind
 *     other bytes   way, what (control, heartbeat, preface)
 *     stages        kind, stage: those that tensors of activations and gradients go through at this end
 *
 * Threads: one at a time. Test: tests/unit/test_metrics_show.c
 */
#ifndef GP_METRIC_ACCOUNT_H
#define GP_METRIC_ACCOUNT_H

#include "common/metrics/metric_row.h"
#include "common/wire/account.h"

struct gp_metric_link {
	const struct gp_dir_account *up, *down;
	bool at_client; /* this end sends what goes up */
};

void gp_row_wire_bytes(const struct gp_metric_row *row, const struct gp_metric_link *l);
void gp_row_kernel_bytes(const struct gp_metric_row *row, const struct gp_tcp_figures *tcp, bool at_client);
void gp_row_frame_bytes(const struct gp_metric_row *row, const struct gp_metric_link *l);
void gp_row_frames(const struct gp_metric_row *row, const struct gp_metric_link *l);
void gp_row_other_bytes(const struct gp_metric_row *row, const struct gp_metric_link *l);
void gp_row_stages(const struct gp_metric_row *row, const struct gp_metric_link *l);

#endif
