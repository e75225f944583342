/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec_rank.h. Test: tests/unit/test_codec_rank.c
 */
#include "client/codecs/codec_rank.h"

#include <math.h>

const char *const gp_rank_bound_name[4] = {"link up", "link down", "codec", "delay"};

/* At rate r a tensor takes seconds + bits / r: two such lines cross at one rate, or one of them is never above. */
static void compare(struct gp_rank_range *range, const struct gp_rank_row *a, double bits, double seconds, int other)
{
	const double rate = (bits - a->bits) / (a->seconds - seconds);
	if (bits > a->bits && a->seconds <= seconds)
		return; /* always faster than the other */
	if (bits <= a->bits && a->seconds >= seconds) {
		range->pays = false;
		range->against = other;
	} else if (bits <= a->bits) {
		range->above = fmax(range->above, rate);
	} else if (rate < range->below) {
		range->below = rate;
		if (range->pays)
			range->against = other;
	}
}

static bool is_twin(const struct gp_rank_row *a, const struct gp_rank_row *b)
{
	return a->bits == b->bits && a->error == b->error && a->seconds == b->seconds;
}

struct gp_rank_range gp_rank_find(const struct gp_rank_row *row, int count, int index, double raw_bits)
{
	struct gp_rank_range range = {.pays = true, .below = INFINITY, .against = GP_RANK_RAW};
	const struct gp_rank_row *a = &row[index];
	compare(&range, a, raw_bits, 0, GP_RANK_RAW);
	for (int i = 0; i < count; i++)
		if (i != index && row[i].fits && row[i].error <= a->error && !(i > index && is_twin(a, &row[i])))
			compare(&range, a, row[i].bits, row[i].seconds, i);
	range.pays = range.pays && range.above < range.below;
	return range;
}

struct gp_rank_time gp_rank_chunk_time(const struct gp_rank_chunk *c, const struct gp_rank_link *l)
{
	struct gp_rank_time t = {
		.up_s = c->up_bits / l->bps, .down_s = c->down_bits / l->bps, .codec_s = fmax(c->here_s, c->there_s)};
	const double alone = t.up_s + t.down_s + c->here_s + c->there_s + c->ways * l->delay_s;
	t.delay_s = alone / l->window;
	const double each[] = {t.up_s, t.down_s, t.codec_s, t.delay_s};
	for (int i = 0; i < 4; i++)
		if (each[i] > t.seconds) {
			t.seconds = each[i];
			t.bound = (enum gp_rank_bound)i;
		}
	return t;
}
