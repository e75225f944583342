/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file of weights says about itself, so that it is used as it was
 * trained: the model with every option, how pictures were prepared, what the
 * classes are called, and the run that made it. Kept as texts in the metadata of
 * the safetensors file (other programs pass over it), and in the state files of
 * checkpoints, which `gpclient model export` makes into files of weights.
 *
 *   gpsplit.format    1
 *   gpsplit.version   of the gpclient that wrote it
 *   gpsplit.model     mobilenetv2:width=0.5,stem=cifar,pad=torch,...: models.h, settled
 *   gpsplit.input     CxHxW of a picture, or the number of tokens
 *   gpsplit.pictures  CxHxW of the stored pictures, where all have one size
 *   gpsplit.mean, .std  R/G/B or one number; on the scale of gpsplit.scale
 *   gpsplit.scale     1/255: a byte of a picture times this, before mean and std
 *   gpsplit.labels    names of the outputs, a JSON array of texts
 *   gpsplit.tokenizer  16 hex digits, equal for tokenizers that make the same tokens of every text; of texts alone
 *   gpsplit.texts     single, or pairs: what a sample of texts is
 *   gpsplit.cut       of a model with insertions: where they stand, as --cut has it
 *   gpsplit.insert_up, .insert_down  the insertions, as the flags have them (insert_spec.h)
 *   gpsplit.data      --data, with the last names of its paths alone
 *   gpsplit.run       the first 8 hex digits of the run's id
 *   gpsplit.steps     training steps, as text
 *
 * A file is not trusted: texts are bounded and printable, or the file is refused.
 *
 * Threads: any, one at a time for a struct. Tests: tests/unit/test_saved_model.c,
 * tests/fuzz/fuzz_safetensors.c
 */
#ifndef GP_SAVED_MODEL_H
#define GP_SAVED_MODEL_H

#include <jansson.h>

#include "client/data/dataset.h"
#include "client/insert/insert.h"
#include "client/models/models.h"
#include "common/graph/weights.h"

#define GP_SAVED_TEXT  256
#define GP_SAVED_LABEL 256 /* most bytes of a label, its end included */

/* Zeroed: the file says nothing. */
struct gp_saved_model {
	char model[GP_MODEL_SPEC]; /* "": not said */
	int64_t tokens;            /* of a sample without pictures; 0: not said */
	uint64_t tokenizer;        /* gp_dataset_tokenizer; 0: not said, or no texts */
	enum gp_saved_texts {
		GP_SAVED_TEXTS_UNKNOWN,
		GP_SAVED_TEXTS_SINGLE,
		GP_SAVED_TEXTS_PAIRS
	} texts; /* whether a sample has two */
	struct gp_preparation pictures;
	json_t *labels;                                       /* array of texts; NULL: not said */
	char cut[32], insert[GP_INSERT_ENDS][GP_INSERT_TEXT]; /* insertions, and the cut where they stand; "": none */
	char data[GP_SAVED_TEXT], run[GP_SAVED_TEXT], version[GP_SAVED_TEXT];
	uint64_t steps;
	uint64_t file_bytes;
};

/* Reads a file's metadata. GP_INVALID: it is no safetensors file, or what it says cannot be. */
enum gp_status gp_saved_model_read(const char *path, struct gp_saved_model *out, struct gp_err *err);
/* The same of an open file; `label` begins every error. */
enum gp_status gp_saved_model_parse(const struct gp_st_file *f, const char *label, struct gp_saved_model *out,
				    struct gp_err *err);
/* What a run has to say: `settled` as models.h makes it, its data set, and the text of --data. */
enum gp_status gp_saved_model_describe(const char *settled, const struct gp_dataset *d, const char *data,
				       struct gp_saved_model *out, struct gp_err *err);
/* The insertions that were put into `g` at `cut`. */
void gp_saved_model_add_insertion(struct gp_saved_model *m, const struct gp_graph *g, const struct gp_cut *cut,
				  const struct gp_insertion *ins);
/* Safe on a zeroed struct. */
void gp_saved_model_deinit(struct gp_saved_model *m);

/* The number of labels, and each; they are valid as long as the struct. */
int gp_saved_model_labels(const struct gp_saved_model *m);
const char *gp_saved_model_label(const struct gp_saved_model *m, int index);
/* --data for `infer`, where only pictures are given: "pictures:classes=10,shape=1x28x28". False: it was not trained on
 * pictures, or does not say how they were prepared. */
bool gp_saved_model_data(const struct gp_saved_model *m, char text[GP_SAVED_TEXT]);

/* The metadata of a file, with the texts behind it. Stays where it was made. */
struct gp_saved_pairs {
	struct gp_st_pair pair[GP_WEIGHTS_PAIRS];
	int count;
	char text[8][GP_SAVED_TEXT];
	int texts;
	char *labels;
};
/* Texts of `m` are borrowed. */
enum gp_status gp_saved_pairs_make(const struct gp_saved_model *m, struct gp_saved_pairs *out, struct gp_err *err);
void gp_saved_pairs_deinit(struct gp_saved_pairs *p);

#endif
