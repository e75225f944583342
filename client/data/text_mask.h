/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked language modelling (Devlin et al., NAACL 2019): which tokens of a text
 * the model has to predict, and what it reads in their place.
 *
 * Where a text has M tokens that are not special, max(1, round(0.15 * M)) of them
 * are chosen; every set of that many is equally probable. In place of a chosen token
 * the model reads the mask with a probability of 80 %, a random token that is not
 * special with 10 %, and the token itself with 10 %. Where M is 0, nothing is chosen.
 * The special tokens are the five of enum gp_special_token: they are never chosen,
 * and only the mask replaces another token.
 *
 * All draws are pure functions of (seed, epoch, sample): the same on any machine
 * and with any number of threads. Not here: which epoch a sample is drawn for
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

/* At most how many tokens are chosen of a text of `tokens` tokens, special ones included. */
int gp_text_mask_most(int64_t tokens);
void gp_text_masking_init(struct gp_text_masking *m, const struct gp_tokenizer *t, int64_t tokens);
/*
 * Masks the `count` tokens of a row in place. `positions` and `labels` have m->most places: they get the positions of the
 * chosen tokens, in ascending order, and the tokens that were there; then 0 and GP_LABEL_NONE. Returns how many were chosen.
 */
int gp_text_mask(const struct gp_text_masking *m, const struct gp_draw *draw, int32_t *token, int count,
		 int32_t *positions, int32_t *labels);

#endif
