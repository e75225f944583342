/* SPDX-License-Identifier: Apache-2.0
 *
 * The best codec at a number of bits, and the chains that are tried. See
 * codec_best.h. Test: tests/unit/test_codec_best.c
 */
#include "client/codecs/codec_best.h"

#include <math.h>
#include <stdio.h>

/* What follows a quantizer in a chain: nothing, or `rans` with none, one or both of its keys. */
enum {
	PLAIN = 1 << 0,
	RANS = 1 << 1,
	PREDICT = 1 << 2,
	TABLES = 1 << 3,
	BOTH = 1 << 4,
	ALL = PLAIN | RANS | PREDICT | TABLES | BOTH
};

static const char *const ending[] = {"", "+rans", "+rans:predict=map", "+rans:tables=channel",
				     "+rans:predict=map,tables=channel"};
enum { ENDINGS = sizeof ending / sizeof ending[0] };

/* A chain for each number of bits from `low` to `high`, which takes the place of %d, and for each of `endings`; a form without
 * %d is one chain (low = high = 1). None remembers anything: what a chain with `ef` or `delta` loses shows in training alone.
 * The keys of `rans` have no effect behind `fp8`, `s2fp8` and `topk`. Behind blocks of a size `predict` gains little, as
 * neighbours have other scales, and `tables` needs a size that many maps' channels divide. */
static const struct {
	const char *form;
	int low, high;
	unsigned endings;
} families[] = {
	{"uniform:bits=%d", 2, 8, ALL},
	{"sortquant:bits=%d,split=2", 2, 6, ALL},
	{"kmeans:bits=%d", 2, 6, ALL},
	{"bdi+zstd", 1, 1, PLAIN},
	{"bitshuffle+zstd", 1, 1, PLAIN},
	{"fp16", 1, 1, PLAIN},
	{"fp16+zstd", 1, 1, PLAIN},
	{"fp16+bitshuffle+zstd", 1, 1, PLAIN},
	{"bf16+bitshuffle+zstd", 1, 1, PLAIN},
	{"uniform:bits=%d+bitshuffle+zstd", 9, 12, PLAIN},
	{"fp8", 1, 1, PLAIN | RANS},
	{"fp8:format=e4m3", 1, 1, PLAIN | RANS},
	{"s2fp8", 1, 1, PLAIN | RANS},
	{"mxfp8", 1, 1, ALL},
	{"mxfp6", 1, 1, ALL},
	{"mxfp6:format=e2m3", 1, 1, ALL},
	{"mxfp4", 1, 1, ALL},
	{"nvfp4", 1, 1, ALL},
	{"smaq:main=6,outlier=8", 1, 1, ALL},
	{"smaq:main=4,outlier=6", 1, 1, ALL},
	{"block:bits=%d,size=64", 2, 8, PLAIN | RANS},
	{"block:bits=%d,size=64,clip=mse", 2, 4, PLAIN | RANS},
	{"block:bits=%d,size=64,zero=asym", 2, 8, PLAIN | RANS},
	{"block:bits=%d,size=64,zero=asym,clip=mse", 2, 4, PLAIN | RANS},
	{"block:bits=%d,size=128", 2, 8, RANS | TABLES},
	{"block:bits=%d,size=1024", 3, 8, RANS | TABLES},
	{"block:bits=%d,dim=channel", 3, 8, RANS | TABLES},
	{"block:bits=%d,zero=asym,dim=channel", 2, 8, ALL},
	{"block:bits=%d,zero=asym,clip=mse,dim=channel", 2, 5, ALL},
	{"hadamard:size=64+block:bits=%d,size=64", 2, 6, PLAIN | RANS},
	{"hadamard:size=64+block:bits=%d,size=64,clip=mse", 2, 3, PLAIN},
	{"topk:ratio=0.25+uniform:bits=%d", 6, 8, PLAIN},
	{"topk:ratio=0.1+uniform:bits=%d", 6, 8, PLAIN},
	{"topk:ratio=0.1+raw", 1, 1, PLAIN},
	{"topk:ratio=0.05+raw", 1, 1, PLAIN},
	{"topk:ratio=0.02+raw", 1, 1, PLAIN},
	{"downsample:factor=%d", 2, 8, PLAIN},
};
enum { FAMILIES = sizeof families / sizeof families[0] };

/* Chains whose budget follows from the bits per element that are asked for. `beside` is what the other fields take of
 * these: in each block a scale 16 bits, a zero point 8, a width 3. */
static const struct {
	const char *form;
	double beside;
} budgets[] = {
	{"block:size=64,budget=%.2f", 19.0 / 64},
	{"block:size=64,zero=asym,budget=%.2f", 27.0 / 64},
	{"block:size=64,clip=mse,budget=%.2f", 19.0 / 64},
	{"block:size=32,budget=%.2f", 19.0 / 32},
	{"hadamard:size=64+block:size=64,budget=%.2f", 19.0 / 64},
};
/* With rans, which makes codes shorter than their budget by an amount that nobody knows before, each form is tried with
 * several budgets, `beyond` bits above those that are asked for. */
static const char *const shortened[] = {
	"block:size=64,budget=%.2f+rans",
	"block:size=128,budget=%.2f+rans",
	"block:size=128,budget=%.2f+rans:tables=channel",
	"block:size=128,zero=asym,budget=%.2f+rans",
	"block:size=128,zero=asym,budget=%.2f+rans:tables=channel",
	"hadamard:size=64+block:size=64,budget=%.2f+rans",
};
static const double beyond[] = {0.1, 0.4, 0.8, 1.2, 1.6, 2.2};

enum {
	BUDGETS = sizeof budgets / sizeof budgets[0],
	SHORTENED = sizeof shortened / sizeof shortened[0],
	BEYOND = sizeof beyond / sizeof beyond[0]
};

/* Two digits, rounded down; 0.01 bits are left for heads, which take more where a tensor has fewer than 10,000 elements. */
static double budget_within(double bits)
{
	const double budget = floor((bits > 0.01 ? bits - 0.01 : 0) * 100 + 1e-6) / 100;
	return budget < 2 ? 2 : budget > 8 ? 8 : budget;
}

/* Chain *i of a family, if it has so many; else false, and *i gets less by as many as it has. */
static bool chain_of_family(int family, int *i, char *text, size_t size)
{
	for (int bits = families[family].low; bits <= families[family].high; bits++)
		for (int e = 0; e < ENDINGS; e++) {
			if (!(families[family].endings & 1u << e) || (*i)-- > 0)
				continue;
			char quantizer[96];
			snprintf(quantizer, sizeof quantizer, families[family].form, bits);
			snprintf(text, size, "%s%s", quantizer, ending[e]);
			return true;
		}
	return false;
}

const char *gp_best_chain(double bits, int i, char *text, size_t size)
{
	if (i < 0)
		return NULL;
	for (int f = 0; f < FAMILIES; f++)
		if (chain_of_family(f, &i, text, size))
			return text;
	if (i >= BUDGETS + SHORTENED * BEYOND)
		return NULL;
	if (i < BUDGETS)
		snprintf(text, size, budgets[i].form, budget_within(bits - budgets[i].beside));
	else
		snprintf(text, size, shortened[(i - BUDGETS) / BEYOND],
			 budget_within(bits + beyond[(i - BUDGETS) % BEYOND]));
	return text;
}

static bool comes_before(const struct gp_best_row *a, const struct gp_best_row *b, double bits)
{
	const bool in = a->fits && a->bits <= bits, other_in = b->fits && b->bits <= bits;
	if (in != other_in)
		return in;
	if (a->fits != b->fits)
		return a->fits;
	if (in && a->error != b->error)
		return a->error < b->error;
	return a->fits && a->bits < b->bits;
}

int gp_best_order(const struct gp_best_row *row, int count, double bits, int *order)
{
	int within = 0;
	for (int i = 0; i < count; i++) {
		int at = i;
		for (; at > 0 && comes_before(&row[i], &row[order[at - 1]], bits); at--)
			order[at] = order[at - 1];
		order[at] = i;
		within += row[i].fits && row[i].bits <= bits;
	}
	return within;
}
