/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a training set that one of several clients has: part=I/N of --data,
 * part I of N. Parts overlap nowhere and are the whole set together. They depend
 * on the text, the set and its labels alone, and are the same on every machine,
 * so that clients need not talk to each other. Validation sets are not divided.
 *
 * Without dirichlet=A the samples are dealt out in a random order: parts have the
 * same size, within one sample, and about the same classes. (A plain text gives
 * every Nth line instead, before any become tokens: data_plain_text.c.) With it
 * each class is divided by itself, its samples falling to parts with probabilities
 * drawn from a symmetric Dirichlet distribution of parameter A, as in Yurochkin et
 * al., "Bayesian nonparametric federated learning of neural networks" (ICML 2019):
 * with a small A few parts have most of a class, with a large one all have as much
 * of it, and parts have different sizes. The samples of a class are drawn one after
 * another from Polya's urn, which gives the same distribution (Blackwell and
 * MacQueen, 1973) by whole numbers alone: sample t falls to a part that has c of the t before it
 * with probability (A + c) / (N A + t).
 *
 * Threads: any. Test: tests/unit/test_data_part.c
 */
#ifndef GP_DATA_PART_H
#define GP_DATA_PART_H

#include "common/base/spec.h"

#define GP_PARTS_MOST 1000000

struct gp_data_part {
	int64_t part, parts; /* from 1 on, of so many; of one: the whole set */
	double dirichlet;    /* A; 0: parts are alike */
	int64_t seed;        /* of the draws: other parts */
};

/* Reads part=, dirichlet= and part-seed=. GP_USAGE names the key. */
enum gp_status gp_data_part_read(struct gp_spec *s, struct gp_data_part *out, struct gp_err *err);

struct gp_dataset;
/* GP_USAGE where samples have no classes to divide, but dirichlet= is given. */
enum gp_status gp_data_part_check(const struct gp_dataset *d, const struct gp_data_part *p, struct gp_err *err);
/* Leaves the part's samples in an open data set, in the order in which they were. GP_USAGE: it has none. */
enum gp_status gp_data_part_take(struct gp_dataset *d, const struct gp_data_part *p, struct gp_err *err);

#endif
