/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a pass of one stage takes, as far as that follows from values and
 * shape: for a server that has to know before it lets a client's codec run. See
 * `work` in codec_impl.h; the sum over a chain is gp_codec_work_for.
 * Test: tests/unit/test_codec_work.c
 */
#include "common/codec/codec_impl.h"

uint64_t gp_codec_work_add(uint64_t a, uint64_t b)
{
	uint64_t sum;
	return gp_add_ok(a, b, &sum) ? sum : UINT64_MAX;
}

uint64_t gp_codec_work_times(uint64_t a, uint64_t b)
{
	uint64_t product;
	return gp_mul_ok(a, b, &product) ? product : UINT64_MAX;
}

static uint64_t one_way(const struct gp_codec_ops *ops, const double *value, const struct gp_codec_setup *setup,
			bool encodes)
{
	struct gp_codec_setup s = *setup;
	s.encodes = encodes;
	s.decodes = !encodes;
	return ops->work ? ops->work(value, &s) : gp_codec_work_times(s.n, GP_CODEC_ELEMENT_NS);
}

uint64_t gp_codec_stage_work(const struct gp_codec_ops *ops, const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t ns = setup->encodes ? one_way(ops, value, setup, true) : 0;
	return setup->decodes ? gp_codec_work_add(ns, one_way(ops, value, setup, false)) : ns;
}
