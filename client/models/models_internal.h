/* SPDX-License-Identifier: Apache-2.0
 *
 * What model builders (model_*.c) and their table (models.c) share: the options
 * after the colon. Callers of models use models.h.
 *
 * Threads: any; nothing here is kept between calls. Test: tests/unit/test_models.c
 */
#ifndef GP_MODELS_INTERNAL_H
#define GP_MODELS_INTERNAL_H

#include "client/models/models.h"
#include "common/base/spec.h"

/* The model's spec, and what the caller left as defaults. */
struct gp_model_args {
	const struct gp_model_info *info;
	struct gp_model_options defaults;
	struct gp_spec spec;
	char settled[GP_MODEL_SPEC]; /* the name and the options that were read so far */
	bool image; /* set by gp_model_arg_input: the model takes images, and has one */
};

/* Each reads one option into *value, which keeps what it holds when the option is not given. */
enum gp_status gp_model_arg_int(struct gp_model_args *a, const char *key, int min, int max, int *value,
				struct gp_err *err);
enum gp_status gp_model_arg_real(struct gp_model_args *a, const char *key, double min, double max, double *value,
				 struct gp_err *err);
/* Index into `choices` ("cifar|imagenet"). */
enum gp_status gp_model_arg_choice(struct gp_model_args *a, const char *key, const char *choices, int *value,
				   struct gp_err *err);
/* "classes=", else the dataset's, else `fallback`. */
enum gp_status gp_model_arg_classes(struct gp_model_args *a, int fallback, int *value, struct gp_err *err);
/* "cuts=blocks|fine": whether blocks end within a layer, too; see gp_model_begin_fine. */
enum gp_status gp_model_arg_cuts(struct gp_model_args *a, int *fine, struct gp_err *err);
/* The dataset's input, else `fallback`; checked to be an image. */
enum gp_status gp_model_arg_input(struct gp_model_args *a, struct gp_shape fallback, struct gp_shape *value,
				  struct gp_err *err);
/* "tokens=" and "vocab=": length of a sample and size of the vocabulary; else the dataset's, checked to be tokens, else
 * what *length and *vocab hold. */
enum gp_status gp_model_arg_tokens(struct gp_model_args *a, int *length, int *vocab, struct gp_err *err);
/* Call after all of the above: GP_USAGE when an option was given that nobody read. */
enum gp_status gp_model_args_done(const struct gp_model_args *a, struct gp_err *err);

/* printf into name[GP_NAME_MAX]; returns it. What does not fit is too long for gp_graph_add, which says so. */
const char *gp_model_name(char name[GP_NAME_MAX], const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* How the parameters of one node start, for builders that differ from torch.nn's defaults. */
void gp_model_init_weight(struct gp_graph *g, int node, enum gp_init_kind kind, float scale);
void gp_model_init_bias(struct gp_graph *g, int node, enum gp_init_kind kind, float scale);

/*
 * Call where `x` ends a block of its own under cuts=fine alone: with `fine`, begins the block `name`. Returns x, -1 after a
 * failure.
 */
int gp_model_begin_fine(struct gp_graph *g, bool fine, const char *name, int x, struct gp_err *err);
/* The same before an activation: begins "BLOCK.act". */
int gp_model_begin_act(struct gp_graph *g, bool fine, const char *block, int x, struct gp_err *err);

typedef enum gp_status (*gp_model_builder)(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err);
enum gp_status gp_model_cnn(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err);
/* roberta, bert: by a->info->name. */
enum gp_status gp_model_encoder(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err);
enum gp_status gp_model_fasttext(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err);
enum gp_status gp_model_mobilenetv2(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err);
/* resnet18, resnet34, resnet20, resnet32, resnet44, resnet56: by a->info->name. */
enum gp_status gp_model_resnet(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err);
enum gp_status gp_model_vgg13(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err);

#endif
