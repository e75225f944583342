/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring of samples. See rate.h. Test: tests/unit/test_rate.c
 */
#include "common/base/rate.h"

#include <math.h>
#include <string.h>

void gp_rate_init(struct gp_rate *r, double window_s)
{
	*r = (struct gp_rate){.window_ns = (uint64_t)(window_s * 1e9)};
}

/* The sample that was noted `back` before the newest. */
static const struct gp_rate_sample *at(const struct gp_rate *r, unsigned back)
{
	return &r->sample[(r->newest + GP_RATE_SAMPLES - back) % GP_RATE_SAMPLES];
}

/* The newest gives way while it is so close to the one before it that the ring could not hold a window of such. */
static int replaces_newest(const struct gp_rate *r, uint64_t now_ns)
{
	return r->count > 1 && now_ns - at(r, 1)->ns < r->window_ns / (GP_RATE_SAMPLES - 2);
}

void gp_rate_note(struct gp_rate *r, uint64_t now_ns, const uint64_t value[GP_RATE_SERIES])
{
	if (!replaces_newest(r, now_ns)) {
		r->newest = (r->newest + 1) % GP_RATE_SAMPLES;
		r->count += r->count < GP_RATE_SAMPLES;
	}
	r->sample[r->newest].ns = now_ns;
	memcpy(r->sample[r->newest].value, value, sizeof r->sample[0].value);
}

/* The oldest one within the window, and the one before the newest in any case. */
static const struct gp_rate_sample *begin_of_window(const struct gp_rate *r)
{
	unsigned back = 1;
	while (back + 1 < r->count && at(r, 0)->ns - at(r, back + 1)->ns <= r->window_ns)
		back++;
	return at(r, back);
}

double gp_rate_per_s(const struct gp_rate *r, int series)
{
	if (r->count < 2)
		return NAN;
	const struct gp_rate_sample *from = begin_of_window(r), *to = at(r, 0);
	const double seconds = (double)(to->ns - from->ns) * 1e-9;
	if (seconds <= 0)
		return NAN;
	return to->value[series] > from->value[series] ? (double)(to->value[series] - from->value[series]) / seconds
						       : 0;
}
