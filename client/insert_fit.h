/* SPDX-License-Identifier: Apache-2.0
 *
 * Fitting the layers of one end by reconstruction: decoder(encoder(value)) is to
 * be the value, by least squares, on data without labels, before anything is
 * trained. The model itself stays as it is.
 *
 * Threads: one. Test: tests/e2e/insert.sh
 */
#ifndef GP_INSERT_FIT_H
#define GP_INSERT_FIT_H

#include <signal.h>

#include "client/insert_values.h"

struct gp_insert_fit {
	struct gp_insert_source from;
	struct gp_loader *checks; /* gives the batches that the errors are taken of */
	int check_batches;
	int steps;
	float lr;
	struct gp_optim optim;
	const volatile sig_atomic_t *stop; /* (optional) set: this is the last step */
	/* (optional) */
	void (*progress)(void *arg, enum gp_insert_end end, int step, double error);
	void *arg;
};

/* Norm of what is lost by that of the values. */
struct gp_insert_error {
	double before, after;
};

/* The weights of `from` get those of the layers, unless the steps have made them no better than they were. The learning rate
 * falls along a cosine. */
enum gp_status gp_insert_fit(const struct gp_insert_fit *fit, enum gp_insert_end end, struct gp_insert_error *out,
			     struct gp_err *err);

#endif
