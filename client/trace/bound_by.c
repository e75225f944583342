/* SPDX-License-Identifier: Apache-2.0
 *
 * See bound_by.h. Test: tests/unit/test_critical_path.c
 */
#include "client/trace/bound_by.h"

#include <stdio.h>
#include <string.h>

static const char *const names[GP_BOUND_COUNT] = {"up_wire", "down_wire", "head",    "body",
						  "tail",    "codec",     "latency", "others"};

const char *gp_bound_name(enum gp_bound b)
{
	return names[b];
}

void gp_bound_by_add(struct gp_bound_by *sum, const struct gp_bound_by *b)
{
	for (int i = 0; i < GP_BOUND_COUNT; i++)
		sum->ns[i] += b->ns[i];
	sum->steps += b->steps;
}

uint64_t gp_bound_by_total_ns(const struct gp_bound_by *b)
{
	uint64_t sum = 0;
	for (int i = 0; i < GP_BOUND_COUNT; i++)
		sum += b->ns[i];
	return sum;
}

enum gp_bound gp_bound_by_largest(const struct gp_bound_by *b)
{
	int best = 0;
	for (int i = 1; i < GP_BOUND_COUNT; i++)
		if (b->ns[i] > b->ns[best])
			best = i;
	return (enum gp_bound)best;
}

static bool needs_link(int bound)
{
	return bound != GP_BOUND_HEAD && bound != GP_BOUND_BODY && bound != GP_BOUND_TAIL;
}

json_t *gp_bound_by_json(const struct gp_bound_by *b, bool linked)
{
	if (b->steps == 0)
		return json_null();
	json_t *o = json_object();
	for (int i = 0; o && i < GP_BOUND_COUNT; i++)
		json_object_set_new(o, names[i],
				    linked || !needs_link(i) ? json_real((double)b->ns[i] * 1e-9 / b->steps)
							     : json_null());
	return o;
}

const char *gp_bound_by_text(const struct gp_bound_by *b, char text[GP_BOUND_BY_TEXT])
{
	struct gp_bound_by left = *b;
	const double total = (double)gp_bound_by_total_ns(b);
	size_t n = 0;
	text[0] = '\0';
	for (int i = 0; i < GP_BOUND_COUNT && b->steps > 0 && total > 0; i++) {
		const enum gp_bound most = gp_bound_by_largest(&left);
		const double percent = 100.0 * (double)left.ns[most] / total;
		if (percent < 1)
			break;
		n += (size_t)snprintf(text + n, GP_BOUND_BY_TEXT - n, "%s%s %.0f %%", n ? ", " : "", names[most],
				      percent);
		left.ns[most] = 0;
	}
	return text;
}
