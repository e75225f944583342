/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of several measured codecs has the least error among those with at most
 * a given number of bits per element, and a list of chains to measure when the
 * user names no codec. Not here: the choice for a link, which weighs time, too
 * (codec_rank.h).
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_best.c
 */
#ifndef GP_CODEC_BEST_H
#define GP_CODEC_BEST_H

#include <stdbool.h>
#include <stddef.h>

/* One codec on one tensor; or on several, by their mean bits and the largest of their errors. */
struct gp_best_row {
	bool fits;    /* the codec takes the tensor, or all of them; false: the rest says nothing */
	double bits;  /* per element, of the whole payload */
	double error; /* relative: the L2 norm of the error by that of the tensor */
};

/* Fills order[0..count) with indices of rows: first the rows with at most `bits`, by rising error, and by rising bits where
 * errors are equal; then the rows with more, by rising bits; last the rows that do not fit. Returns how many have at most
 * `bits`. */
int gp_best_order(const struct gp_best_row *row, int count, double bits, int *order);

#define GP_BEST_CHAINS 352 /* no list is longer */

/* Writes chain i, from 0 on, of the list to text[size] and returns text; NULL past the end. The list does not depend on
 * `bits`, the bits per element that are asked for, but for the budgets of its last chains. */
const char *gp_best_chain(double bits, int i, char *text, size_t size);

#endif
