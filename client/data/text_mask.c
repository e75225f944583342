/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_mask.h. Test: tests/unit/test_text_mask.c
 */
#include "client/data/text_mask.h"

#include "common/base/rng.h"

enum { CHOOSE, KIND, TOKEN }; /* what a draw at a position is for */

/* 0.15 * n, rounded; a half goes up. */
static int share(int64_t n)
{
	const int64_t rounded = (15 * n + 50) / 100;
	return rounded < 1 ? 1 : (int)rounded;
}

int gp_text_mask_most(int64_t tokens)
{
	return share(tokens);
}

static bool is_special(const struct gp_text_masking *m, int32_t token)
{
	for (int i = 0; i < m->specials; i++)
		if (m->special[i] == token)
			return true;
	return false;
}

static void add_special(struct gp_text_masking *m, int32_t token)
{
	int at = m->specials;
	if (is_special(m, token))
		return;
	for (; at > 0 && m->special[at - 1] > token; at--)
		m->special[at] = m->special[at - 1];
	m->special[at] = token;
	m->specials++;
}

void gp_text_masking_init(struct gp_text_masking *m, const struct gp_tokenizer *t, int64_t tokens)
{
	*m = (struct gp_text_masking){.mask = gp_tokenizer_special(t, GP_TOKEN_MASK),
				      .vocabulary = gp_tokenizer_vocabulary(t),
				      .most = gp_text_mask_most(tokens)};
	for (int i = 0; i < GP_SPECIAL_TOKENS; i++)
		add_special(m, gp_tokenizer_special(t, (enum gp_special_token)i));
}

static uint32_t draw_below(const struct gp_draw *d, int position, int what, uint32_t bound)
{
	const uint64_t index = (uint64_t)d->sample << 24 | (uint64_t)position << 2 | (uint64_t)what;
	return gp_rng_below(d->seed, gp_rng_stream(GP_RNG_MASK, d->epoch), index, bound);
}

/* Any token but the special ones; the padding where there is no other. */
static int32_t draw_token(const struct gp_text_masking *m, const struct gp_draw *d, int position)
{
	const int32_t others = m->vocabulary - m->specials;
	if (others < 1)
		return m->special[0];
	int32_t token = (int32_t)draw_below(d, position, TOKEN, (uint32_t)others);
	for (int i = 0; i < m->specials && m->special[i] <= token; i++)
		token++;
	return token;
}

static int32_t stand_in(const struct gp_text_masking *m, const struct gp_draw *d, int position, int32_t token)
{
	const uint32_t kind = draw_below(d, position, KIND, 10);
	return kind < 8 ? m->mask : kind == 8 ? draw_token(m, d, position) : token;
}

int gp_text_mask(const struct gp_text_masking *m, const struct gp_draw *draw, int32_t *token, int count,
		 int32_t *positions, int32_t *labels)
{
	int left = 0, chosen = 0;
	for (int i = 0; i < count; i++)
		left += !is_special(m, token[i]);
	const int wanted = left > 0 ? share(left) : 0;
	for (int i = 0; i < count && chosen < wanted; i++) {
		if (is_special(m, token[i]))
			continue;
		if (draw_below(draw, i, CHOOSE, (uint32_t)left--) >= (uint32_t)(wanted - chosen))
			continue;
		positions[chosen] = i;
		labels[chosen++] = token[i];
		token[i] = stand_in(m, draw, i, token[i]);
	}
	for (int i = chosen; i < m->most; i++) {
		positions[i] = 0;
		labels[i] = GP_LABEL_NONE;
	}
	return chosen;
}
