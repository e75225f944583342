/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked language modelling (Devlin et al., NAACL 2019): which tokens of a text
 * are to be guessed, and what stands in their place.
 *
 * Where M tokens are no special ones, max(1, round(0.15 * M)) of them are chosen,
 * any set of so many with the same chance, in the order of the text. In place of
 * a chosen one stands the mask with a chance of 80 %, any token that is no
 * special one with 10 %, and itself with 10 %. A text without such tokens has
 * nothing to guess. Special are the five of enum gp_special_token: they are never
 * chosen, and never stand in for another.
 *
 * All draws are pure functions of (seed, epoch, sample): the same on any machine
 * and number of threads. Not here: when which epoch is drawn for
 * (client/data/data_plain_text.c).
 *
 * Threads: any. Test: tests/unit/test_text_mask.c
 */
#ifndef GP_TEXT_MASK_H
#define GP_TEXT_MASK_H

#include "client/data/data_internal.h"
#include "client/text/tokenizer.h"

struct gp_text_masking {
	int32_t special[GP_SPECIAL_TOKENS]; /* sorted, each once */
	int specials;
	int32_t mask, vocabulary;
	int most; /* places of a row, gp_text_mask_most */
};

/* Places for what is chosen of a text that has at most so many tokens, the special ones among them. */
int gp_text_mask_most(int64_t tokens);
void gp_text_masking_init(struct gp_text_masking *m, const struct gp_tokenizer *t, int64_t tokens);
/*
 * Changes the `count` tokens of a row in place. `positions` and `labels` have m->most places: where the chosen ones stand, and
 * what was there; behind them 0 and GP_LABEL_NONE. Returns how many were chosen.
 */
int gp_text_mask(const struct gp_text_masking *m, const struct gp_draw *draw, int32_t *token, int count,
		 int32_t *positions, int32_t *labels);

#endif
