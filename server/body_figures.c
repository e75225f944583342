/* SPDX-License-Identifier: Apache-2.0
 *
 * What a body has done and has waiting, for whoever counts it. See body.h. Test: tests/unit/test_server_metrics.c
 */
#include "server/body_impl.h"

static void add_raw(struct gp_flow *flow, void *arg)
{
	*(uint64_t *)arg += flow->stats.raw_fallbacks;
}

void gp_body_figures(struct gp_body *b, struct gp_body_figures *out)
{
	const struct gp_body_checkpoint *k = &b->checkpoint;
	*out = (struct gp_body_figures){.checkpoints = k->written,
					.checkpoint_failures = k->failures,
					.checkpoint_bytes = k->bytes,
					.checkpoint_ns = k->ns,
					.compute_queued = b->compute.pending,
					.disk_queued = b->checkpoint.lane.pending};
	if (!b->built)
		return;
	gp_flows_each(&b->flows, add_raw, &out->raw_fallbacks);
	out->codec_queued = gp_flows_pending(&b->flows);
}
