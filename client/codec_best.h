/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of several measured codecs loses least with at most so many bits per
 * element, and a list of chains to measure where the user names none. Not the
 * choice for a link, which weighs time too: codec_rank.h.
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_best.c
 */
#ifndef GP_CODEC_BEST_H
#define GP_CODEC_BEST_H

#include <stdbool.h>
#include <stddef.h>

/* One codec on one tensor, or on several. */
struct gp_best_row {
	bool fits;
	double bits; /* per element, of the whole payload */
	double error;
};

/* order[0..count): those with at most `bits` first, the least error before others and of equal errors the fewest bits; then
 * those with more, the fewest bits first; then those that do not fit. Returns how many have at most `bits`. */
int gp_best_order(const struct gp_best_row *row, int count, double bits, int *order);

/* Chain i of the list for so many bits per element to text[size]. NULL: past the end; at most GP_BEST_CHAINS. */
#define GP_BEST_CHAINS 64
const char *gp_best_chain(double bits, int i, char *text, size_t size);

#endif
