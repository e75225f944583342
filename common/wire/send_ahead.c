/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes ahead of the link, from the kernel's figures. See send_ahead.h. Test: tests/unit/test_send_ahead.c
 */
#include "common/wire/send_ahead.h"

#define AHEAD_S 2e-3
#define LOOK_NS 100000000ull /* at most so often */
#define BUSY_US 20000u       /* of sending between two looks: less tells little about the rate */

uint32_t gp_send_ahead_at(double bytes_per_s)
{
	const double bytes = bytes_per_s * AHEAD_S;
	if (!(bytes > 0) || bytes >= GP_SEND_AHEAD_MAX)
		return GP_SEND_AHEAD_MAX;
	return bytes > GP_SEND_AHEAD_MIN ? (uint32_t)bytes : GP_SEND_AHEAD_MIN;
}

int gp_send_ahead_writes(uint32_t ahead, uint32_t segment_bytes)
{
	const uint32_t fit = 2 * ahead / segment_bytes;
	return fit < 1 ? 1 : fit > GP_SEND_AHEAD_WRITES ? GP_SEND_AHEAD_WRITES : (int)fit;
}

void gp_send_ahead_init(struct gp_send_ahead *a)
{
	*a = (struct gp_send_ahead){.bytes = GP_SEND_AHEAD_MAX};
}

bool gp_send_ahead_due(const struct gp_send_ahead *a, uint64_t now_ns)
{
	return now_ns - a->looked_ns >= LOOK_NS;
}

bool gp_send_ahead_look(struct gp_send_ahead *a, uint64_t now_ns, const struct gp_tcp_figures *f)
{
	const uint32_t before = a->bytes;
	a->looked_ns = now_ns;
	if (!f->valid || f->busy_us < a->busy_us + BUSY_US)
		return false;
	const double seconds = (double)(f->busy_us - a->busy_us) * 1e-6;
	a->bytes = gp_send_ahead_at((double)(f->bytes_acked - a->acked) / seconds);
	a->acked = f->bytes_acked;
	a->busy_us = f->busy_us;
	return a->bytes != before;
}
