/* SPDX-License-Identifier: Apache-2.0
 *
 * An attack on a cut, as a check of what it gives away: somebody who has the head, the
 * codec and pictures of the same kind, such as a curious server that was told which
 * model is trained, learns a decoder (attack_decoder.h) from what crosses the cut
 * back to the pictures, by least squares. How well it restores pictures that it has
 * not learnt from is measured. Not here: where the tensors come from
 * (attack_source.h), files and records (commands/cmd_attack.c).
 *
 * PSNR is 10 log10(1 / e), e the mean of the squared errors of all numbers of all
 * pictures held back, on the scale 0 to 1; restored ones are limited to that scale.
 *
 * Threads: one; the call blocks until all is done. Test: tests/unit/test_attack.c,
 * tests/e2e/attack.sh
 */
#ifndef GP_ATTACK_H
#define GP_ATTACK_H

#include <signal.h>

#include "client/attack/attack_source.h"
#include "client/data/dataset.h"
#include "client/privacy/distance_correlation.h"

struct gp_attack {
	struct gp_attack_victim victim;
	struct gp_preparation pictures;  /* of the samples, as the dataset prepares them */
	struct gp_loader *train, *check; /* full batches; those of `check` are held back */
	uint64_t steps;
	uint32_t check_batches;
	float lr;                          /* of Adam at the first step; it falls to nothing along a cosine */
	int shown;                         /* pictures that are kept, at most those of the first check batch */
	const volatile sig_atomic_t *stop; /* (optional) set: this is the last step */
	/* (optional) `error`: the mean squared error of the step's pictures, on the scale 0 to 1. */
	void (*progress)(void *arg, uint64_t step, double error);
	void *arg;
};

struct gp_attack_result {
	uint64_t steps; /* done */
	uint64_t decoder_parameters;
	int tensors, tensors_read;   /* that cross; that the decoder reads */
	uint64_t checked;            /* pictures held back */
	double psnr_db;              /* of those that the decoder restored */
	double mean_picture_psnr_db; /* where each is taken for the mean of the training pictures: what chance is */
	double payload_bytes;        /* of one picture, in the mean */
	struct gp_distance_correlation correlation; /* of the pictures held back and what crossed */
	int samples;                                /* of it */
	/* The first pictures, 8 bits a number: (shown, H, W, C). */
	int shown;
	uint8_t *original, *restored;
};

/* GP_CANCELED where the decoder diverges. On failure `out` is as it was. */
enum gp_status gp_attack_run(const struct gp_attack *a, struct gp_attack_result *out, struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_attack_result_deinit(struct gp_attack_result *r);

#endif
