/* SPDX-License-Identifier: Apache-2.0
 *
 * The one parser of NAME[:ARG][,]key=value,...: datasets, models and the stages
 * of a codec are named in this form, with numbers and words as the flags take
 * them (value.h).
 *
 *     spec := NAME [ (":" | ",") pair *( "," pair ) ]      cnn:width=16   fashion-mnist,limit=100
 *           | NAME ":" ARG *( "," pair )                   folder:DIR,size=128
 *     pair := key "=" value
 *
 * NAME holds neither ":" nor ",", ARG no ",". A key comes at most once. A name
 * whose argument may be left out takes what follows ":" for a pair if it holds
 * "=" and no "/".
 *
 * Use: gp_spec_begin; find what the name stands for, else gp_spec_unknown; then
 * gp_spec_pairs; ask for every key there is; gp_spec_done. Keys are known by
 * having been asked for, so there is no second list of them. Runs on text from
 * a peer: bounded, no allocation, nothing quoted that could damage a log. The
 * text outlives the struct. Errors are GP_USAGE and begin with where they are.
 * No state but the struct: any thread.
 *
 * Threads: any, one at a time for a struct. Test: tests/unit/test_spec.c; fuzz:
 * fuzz_codec_spec.c, fuzz_data_spec.c, fuzz_model_spec.c
 */
#ifndef GP_SPEC_H
#define GP_SPEC_H

#include "common/base/status.h"
#include "common/base/value.h"

#define GP_SPEC_PAIRS 16 /* pairs in one spec, and keys that may be asked for */

enum gp_spec_arg { GP_SPEC_NO_ARG, GP_SPEC_ARG_OPTIONAL, GP_SPEC_ARG_NEEDED };

struct gp_spec {
	struct gp_text name;
	struct gp_text arg; /* len 0: not given */
	/* The rest is spec.c's. */
	struct gp_text rest;
	char where[56]; /* "model cnn" */
	const char *
		keys; /* what keys there are, for people: "width=1.0,stem=imagenet|cifar"; may be empty. One without '='
			   * may be given without, too, and then has the value 1 */
	int pairs, asked;
	struct {
		struct gp_text key, value;
	} pair[GP_SPEC_PAIRS];
	const char *ask[GP_SPEC_PAIRS];
};

/* Cuts the name off. It may be empty or unknown: the caller looks it up. */
void gp_spec_begin(struct gp_spec *s, struct gp_text text);
/* Fails with "no WHAT is named 'cnnn'; did you mean 'cnn'? There are: ..." */
enum gp_status gp_spec_unknown(const struct gp_spec *s, const char *what, const char *const *names, int count,
			       struct gp_err *err);
/* Reads what follows the name. `where` begins every error; `keys` outlives `s`. An argument that is needed and empty is
 * left to the caller, who knows what it should have been. */
enum gp_status gp_spec_pairs(struct gp_spec *s, const char *where, enum gp_spec_arg arg, const char *keys,
			     struct gp_err *err);
/* Whether `key` is given, and its text. */
bool gp_spec_given(struct gp_spec *s, const char *key, struct gp_text *value);
/* Each reads one key; *out keeps what it holds when the key is not given, and on failure. */
enum gp_status gp_spec_value(struct gp_spec *s, const char *key, const struct gp_value_form *form, union gp_value *out,
			     struct gp_err *err);
enum gp_status gp_spec_int(struct gp_spec *s, const char *key, int64_t min, int64_t max, int64_t *out,
			   struct gp_err *err);
enum gp_status gp_spec_real(struct gp_spec *s, const char *key, double min, double max, double *out,
			    struct gp_err *err);
enum gp_status gp_spec_bool(struct gp_spec *s, const char *key, bool *out, struct gp_err *err);
enum gp_status gp_spec_choice(struct gp_spec *s, const char *key, const char *choices, int *out, struct gp_err *err);
/* Fails with "WHERE: KEY: 'VALUE' is not WANTED", for values of other forms than value.h has. */
enum gp_status gp_spec_refuse(const struct gp_spec *s, const char *key, struct gp_text value, const char *wanted,
			      struct gp_err *err);
/* After every key was asked for: fails when another one is given, with the one that was probably meant. */
enum gp_status gp_spec_done(const struct gp_spec *s, struct gp_err *err);

#endif
