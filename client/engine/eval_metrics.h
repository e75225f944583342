/* SPDX-License-Identifier: Apache-2.0
 *
 * What an evaluation tells beyond loss and accuracy: Matthews correlation of
 * classes, Pearson's and Spearman's of values. It looks at every row of the
 * model's outputs once, in any order of the chunks; nothing here is of a training
 * step.
 *
 * Sources: R_K of Gorodkin, "Comparing two K-category assignments by a K-category
 * correlation coefficient" (2004), which is Matthews' (1975) for two classes;
 * Spearman's is Pearson's of ranks, equal values having the mean of theirs.
 *
 * Threads: one at a time for a struct. Test: tests/unit/test_eval_metrics.c
 */
#ifndef GP_EVAL_METRICS_H
#define GP_EVAL_METRICS_H

#include <math.h>

#include <jansson.h>

#include "client/data/dataset.h"

/* Owned memory is taken by gp_metrics_init alone: adding rows allocates nothing. */
struct gp_metrics {
	int outputs;   /* numbers in a row */
	bool values;   /* rows are single values to predict; else scores of classes */
	bool words;    /* a sample has several rows, scores of words to guess: nothing is kept of them */
	uint32_t room; /* samples of an evaluation at most */
	uint64_t samples, correct;
	uint64_t *labelled, *predicted; /* (outputs): how often each class is the label, and the highest score */
	float *label, *value;           /* (room), of values */
	uint32_t *order;                /* (room) */
	double *rank[2];                /* (room), of labels and of values */
};

/* For evaluations of `d` by a model with so many outputs. */
enum gp_status gp_metrics_init(struct gp_metrics *m, const struct gp_dataset *d, int outputs, struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_metrics_deinit(struct gp_metrics *m);
/* Forgets what was added: an evaluation begins. */
void gp_metrics_begin(struct gp_metrics *m);
/* The first `valid` rows of a chunk, and their labels, as gp_batch_labels has them. */
void gp_metrics_add(struct gp_metrics *m, const float *rows, const void *labels, int valid);

/* Where it is undefined, as it is when all labels or all predictions are one class, it is 0. NaN of values. */
double gp_metrics_matthews(const struct gp_metrics *m);
/* Where they are undefined, as they are when all values are equal, they are 0. NaN of classes, and where a prediction is
 * not finite. Both use memory of `m`. */
double gp_metrics_pearson(struct gp_metrics *m);
double gp_metrics_spearman(struct gp_metrics *m);

/* The figures of an evaluation; NaN where there is none of the kind. */
struct gp_scores {
	double loss, acc, matthews, pearson, spearman;
	double perplexity; /* of a masked language model: exp(loss) */
};
#define GP_NO_SCORES ((struct gp_scores){NAN, NAN, NAN, NAN, NAN, NAN})
/* `m` NULL: no correlation is known. `loss_sum` and `correct` are over `samples`. */
struct gp_scores gp_scores_of(struct gp_metrics *m, bool values, double loss_sum, uint64_t correct, uint64_t samples);
/* Adds val_loss, val_acc, val_mcc, val_pearson, val_spearman and val_perplexity to `object`; takes it. NULL for NULL. */
json_t *gp_scores_json(json_t *object, const struct gp_scores *s);
#define GP_SCORES_TEXT 160
/* "accuracy 86.21 %, Matthews correlation 0.5120"; `matthews`: whether that one is named; "" where there is nothing but a
 * loss. Returns text. */
const char *gp_scores_text(const struct gp_scores *s, bool matthews, char text[GP_SCORES_TEXT]);
/* The same, and the loss. */
const char *gp_scores_and_loss(const struct gp_scores *s, bool matthews, char text[GP_SCORES_TEXT]);

#endif
