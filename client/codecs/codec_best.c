/* SPDX-License-Identifier: Apache-2.0
 *
 * The best codec at a number of bits, and the chains that are tried. See
 * codec_best.h. Test: tests/unit/test_codec_best.c
 */
#include "client/codecs/codec_best.h"

#include <stdio.h>

/* None of these remembers anything: what a chain with `ef` or `delta` loses shows in training alone. */
static const char *const chains[] = {
	"uniform:bits=8",
	"uniform:bits=6",
	"uniform:bits=4",
	"uniform:bits=3",
	"uniform:bits=2",
	"uniform:bits=8+rans",
	"uniform:bits=7+rans",
	"uniform:bits=6+rans",
	"uniform:bits=5+rans",
	"uniform:bits=4+rans",
	"uniform:bits=3+rans",
	"sortquant:bits=6,split=2",
	"sortquant:bits=4,split=2",
	"sortquant:bits=2,split=2",
	"kmeans:bits=4",
	"kmeans:bits=3",
	"kmeans:bits=2",
	"fp16",
	"mxfp8",
	"mxfp6",
	"mxfp6:format=e2m3",
	"mxfp4",
	"nvfp4",
	"mxfp8+rans",
	"mxfp4+rans",
	"nvfp4+rans",
	"fp8",
	"s2fp8",
	"smaq:main=6,outlier=8",
	"block:bits=8,size=64",
	"block:bits=6,size=64",
	"block:bits=5,size=64",
	"block:bits=4,size=64",
	"block:bits=3,size=64,clip=mse",
	"block:bits=2,size=64,clip=mse",
	"block:bits=8,size=64,zero=asym",
	"block:bits=6,size=64,zero=asym",
	"block:bits=4,size=64,zero=asym",
	"block:bits=3,size=64,zero=asym,clip=mse",
	"block:bits=2,size=64,zero=asym,clip=mse",
	"block:bits=4,zero=asym,dim=channel",
	"block:bits=8,size=64+rans",
	"block:bits=7,size=64+rans",
	"block:bits=7,size=1024+rans",
	"block:bits=6,size=1024+rans",
	"block:bits=5,size=1024+rans",
	"block:bits=4,size=1024+rans",
	"block:bits=6,zero=asym,dim=channel+rans",
	"block:bits=5,zero=asym,dim=channel+rans",
	"block:bits=4,zero=asym,dim=channel+rans",
	"block:bits=6,size=64+rans",
	"block:bits=5,size=64+rans",
	"block:bits=4,size=64+rans",
	"block:bits=3,size=64+rans",
	"hadamard:size=64+block:bits=6,size=64",
	"hadamard:size=64+block:bits=4,size=64",
	"hadamard:size=64+block:bits=3,size=64,clip=mse",
	"hadamard:size=64+block:bits=2,size=64,clip=mse",
	"hadamard:size=64+block:bits=5,size=64+rans",
	"hadamard:size=64+block:bits=4,size=64+rans",
	"uniform:bits=8+rans:predict=map",
	"uniform:bits=7+rans:predict=map",
	"uniform:bits=6+rans:predict=map",
	"uniform:bits=5+rans:predict=map",
	"uniform:bits=4+rans:predict=map",
	"block:bits=6,zero=asym,dim=channel+rans:predict=map",
	"block:bits=5,zero=asym,dim=channel+rans:predict=map",
	"block:bits=4,zero=asym,dim=channel+rans:predict=map",
	"kmeans:bits=4+rans:predict=map",
	"uniform:bits=8+rans:predict=map,tables=channel",
	"uniform:bits=7+rans:predict=map,tables=channel",
	"uniform:bits=6+rans:predict=map,tables=channel",
	"uniform:bits=5+rans:predict=map,tables=channel",
	"uniform:bits=4+rans:predict=map,tables=channel",
	"block:bits=6,zero=asym,dim=channel+rans:predict=map,tables=channel",
	"block:bits=5,zero=asym,dim=channel+rans:predict=map,tables=channel",
	"block:bits=4,zero=asym,dim=channel+rans:predict=map,tables=channel",
	"block:bits=3,zero=asym,dim=channel+rans:predict=map,tables=channel",
	"block:bits=8,size=128+rans:tables=channel",
	"block:bits=7,size=128+rans:tables=channel",
	"block:bits=6,size=128+rans:tables=channel",
	"block:bits=5,size=128+rans:tables=channel",
	"block:bits=4,size=128+rans:tables=channel",
	"block:bits=3,size=128+rans:tables=channel",
	"topk:ratio=0.25+uniform:bits=8",
	"topk:ratio=0.1+uniform:bits=8",
};

/* Chains whose budget follows from the bits per element that are asked for. `beside` is what the other fields take of
 * these: in each block a scale 16 bits, a zero point 8, a width 3. It is below 0 with rans, which makes codes shorter than
 * their budget. */
static const struct {
	const char *form;
	double beside;
} budgets[] = {
	{"block:size=64,budget=%.2f", 19.0 / 64},
	{"block:size=64,zero=asym,budget=%.2f", 27.0 / 64},
	{"block:size=64,clip=mse,budget=%.2f", 19.0 / 64},
	{"block:size=32,budget=%.2f", 19.0 / 32},
	{"hadamard:size=64+block:size=64,budget=%.2f", 19.0 / 64},
	{"block:size=64,budget=%.2f+rans", -0.1},
	{"block:size=64,budget=%.2f+rans", -0.4},
	{"block:size=64,zero=asym,budget=%.2f+rans", -0.1},
	{"block:size=128,budget=%.2f+rans", -0.1},
	{"block:size=128,budget=%.2f+rans", -0.4},
	{"block:size=128,budget=%.2f+rans", -0.8},
	{"block:size=128,budget=%.2f+rans", -1.2},
	{"block:size=128,budget=%.2f+rans", -1.6},
	{"block:size=128,budget=%.2f+rans", -2.2},
	{"block:size=128,zero=asym,budget=%.2f+rans", -0.4},
	{"block:size=128,zero=asym,budget=%.2f+rans", -0.8},
	{"block:size=128,zero=asym,budget=%.2f+rans", -1.2},
	{"block:size=128,zero=asym,budget=%.2f+rans", -1.6},
	{"block:size=128,zero=asym,budget=%.2f+rans", -2.2},
	{"hadamard:size=64+block:size=64,budget=%.2f+rans", -0.1},
	{"hadamard:size=64+block:size=64,budget=%.2f+rans", -0.4},
};

enum { FIXED = sizeof chains / sizeof chains[0], BUDGETS = sizeof budgets / sizeof budgets[0] };
_Static_assert(FIXED + BUDGETS <= GP_BEST_CHAINS, "the list has more chains than its header says");

/* Two digits, rounded down; 0.01 bits are left for heads, which take more where a tensor has fewer than 10,000 elements. */
static double budget_within(double bits)
{
	const double budget = (double)(long)((bits > 0.01 ? bits - 0.01 : 0) * 100) / 100;
	return budget < 2 ? 2 : budget > 8 ? 8 : budget;
}

const char *gp_best_chain(double bits, int i, char *text, size_t size)
{
	if (i < 0 || i >= FIXED + BUDGETS)
		return NULL;
	if (i < FIXED)
		snprintf(text, size, "%s", chains[i]);
	else
		snprintf(text, size, budgets[i - FIXED].form, budget_within(bits - budgets[i - FIXED].beside));
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
