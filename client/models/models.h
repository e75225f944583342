/* SPDX-License-Identifier: Apache-2.0
 *
 * Model builders: "mobilenetv2:width=0.5,stem=cifar,classes=10" to a graph.
 * One table (models.c) names every model. To add one: a model_NAME.c with a
 * builder and a row in that table.
 *
 * Threads: any; nothing here is kept between calls.
 * Test: tests/unit/test_models.c, tests/unit/test_model_cuts.c
 */
#ifndef GP_MODELS_H
#define GP_MODELS_H

#include "common/graph/graph.h"

struct gp_model_options {
	int classes;           /* 0 = not given: the dataset's, else the model's default */
	struct gp_shape input; /* one sample, (H,W,C) or tokens (S); ndim 0 = not given: the model's default */
	int64_t values;        /* tokens are within [0, values): the size of the vocabulary; 0 = not given */
};

/*
 * Builds NAME[:key=value,...]. `defaults` fill in what the text leaves open
 * (classes, input shape and vocabulary from the dataset). GP_USAGE with the list of models
 * or of the model's options when a name is unknown.
 */
enum gp_status gp_model_build(const char *spec, const struct gp_model_options *defaults, struct gp_graph **out,
			      struct gp_err *err);

#define GP_MODEL_SPEC 256

/*
 * The same, and settled[GP_MODEL_SPEC] becomes NAME:key=value,... with every option of the model as it was settled, so that
 * this text alone, with the same input, builds the same model, whatever defaults become.
 */
enum gp_status gp_model_build_settled(const char *spec, const struct gp_model_options *defaults, struct gp_graph **out,
				      char settled[GP_MODEL_SPEC], struct gp_err *err);

/* Which options two settled texts of models differ in. */
struct gp_model_difference {
	char decisive[96]; /* they compute something else, or hold other parameters: "pad, eps"; "" none */
	bool classes;      /* another number of classes, which a new classifier may have, or another kind of head */
};
/* Differences that change nothing in what is computed of a sample (cuts, dropout, tokens) are none. */
void gp_model_compare(const char *settled, const char *other, struct gp_model_difference *out);
/* Takes `key` and its value out of the text of a model, in place. */
void gp_model_spec_drop(char *spec, const char *key);

/* Whether the text of a model, as it was settled or given, has lm=1. */
bool gp_model_guesses_words(const char *spec);
/* Masked positions of a row of so many tokens: 15 %, rounded, and at least 1. */
int64_t gp_model_masked(int64_t tokens);

struct gp_model_info {
	const char *name, *summary, *options; /* options: one line, "width=1.0,stem=cifar|imagenet,classes=N" */
};
/* Models by index, NULL past the end. */
const struct gp_model_info *gp_model_info(int index);

#endif
