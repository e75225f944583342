/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of a model's outputs: of a text file, one per line, of a file of
 * weights, or of a dataset's classes.
 *
 * Threads: any, one at a time for a list of names. Test: tests/unit/test_labels.c
 */
#ifndef GP_LABELS_H
#define GP_LABELS_H

#include "client/data/dataset.h"
#include "client/weights/saved_model.h"

struct gp_labels {
	char **name; /* `count` of them */
	int count;
};

/* One name per line, as many as `outputs`: GP_INVALID tells how many there are instead. */
enum gp_status gp_labels_read(struct gp_labels *l, const char *path, int outputs, struct gp_err *err);
/* The classes of `d`; further outputs are "output 17". */
enum gp_status gp_labels_of_dataset(struct gp_labels *l, const struct gp_dataset *d, int outputs, struct gp_err *err);
/* Those in a file of weights, which has one for each output. */
enum gp_status gp_labels_of_saved(struct gp_labels *l, const struct gp_saved_model *m, struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_labels_deinit(struct gp_labels *l);

#endif
