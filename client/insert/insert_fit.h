/* SPDX-License-Identifier: Apache-2.0
 *
 * Trains the layers of one end alone, before the model is trained with them, so that
 * decoder(encoder(value)) reconstructs the value: by least squares, without labels.
 * The model itself stays as it is.
 *
 * Threads: one. Test: tests/e2e/insert.sh
 */
#ifndef GP_INSERT_FIT_H
#define GP_INSERT_FIT_H

#include "client/insert/insert_values.h"

struct gp_insert_fit {
	struct gp_insert_source from;
	struct gp_loader *checks; /* the batches on which the errors are measured */
	int check_batches;
	int steps;
	float lr;
	struct gp_optim optim;
	/* (optional) */
	void (*progress)(void *arg, enum gp_insert_end end, int step, double error);
	void *arg;
};

/* The norm of the reconstruction's error divided by the norm of the values. */
struct gp_insert_error {
	double before, after;
};

/* Writes the layers' weights to the weights of `from`, unless the steps have not made the error smaller. The learning rate
 * falls along a cosine. */
enum gp_status gp_insert_fit(const struct gp_insert_fit *fit, enum gp_insert_end end, struct gp_insert_error *out,
			     struct gp_err *err);

#endif
