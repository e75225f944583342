/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter values of a whole model in host memory: drawn from a seed,
 * loaded from and saved to safetensors files with torch's names, hashed. This
 * is the state dict of PyTorch without num_batches_tracked: fp32, PyTorch's
 * layouts, running statistics included. Devices hold their own copies
 * (device.h: param_get, param_set).
 *
 * Threads: any, one at a time for one set of weights. Test: tests/unit/test_weights.c
 */
#ifndef GP_WEIGHTS_H
#define GP_WEIGHTS_H

#include "common/graph/decay.h"
#include "common/graph/graph.h"
#include "common/store/safetensors.h"

struct gp_weights {
	const struct gp_graph *graph; /* must outlive this */
	float **value;                /* value[i]: graph->param[i].count floats */
	struct gp_graph *own;         /* NULL, or the graph, which is these weights' own: gp_weights_fit */
};

/* Values are zero. */
enum gp_status gp_weights_new(const struct gp_graph *g, struct gp_weights **out, struct gp_err *err);
void gp_weights_free(struct gp_weights *w);
/*
 * Makes room for the parameters that a model with decaying ranks has after `steps` steps: w->graph becomes a copy of `start`,
 * which has the ranks of step 0, with the ranks of that step, and the values become zero. Without decays nothing changes.
 */
enum gp_status gp_weights_fit(struct gp_weights *w, const struct gp_decays *d, const struct gp_graph *start,
			      uint64_t steps, struct gp_err *err);
/* Every parameter as gp_param_init draws it. */
void gp_weights_init(struct gp_weights *w, uint64_t seed);

/* What a file and a graph did not have in common. Lists are "a, b, c and 7 more". */
struct gp_weights_report {
	int loaded, missing, unexpected, mismatched, skipped;
	char missing_names[200];    /* the graph has them, the file does not */
	char unexpected_names[200]; /* the file has them, the graph does not */
	char mismatched_names[200]; /* both have them: "classifier.weight: file has 100x64, model wants 10x64" */
	char skipped_names[200];    /* left out on request, whoever has them */
	bool untied; /* the file has other values for a parameter that follows another than for that one */
};

/*
 * Reads every parameter of the graph from the file by name, but one that
 * follows another (gp_graph_tie) as that one; F32, F16, BF16 and
 * F64 are converted. A name may lack the model's ("embeddings..." for
 * "roberta.embeddings..."), and weight and bias of a LayerNorm may be called gamma
 * and beta, as Hugging Face's files have it. Tensors named *.num_batches_tracked
 * and *.position_ids are passed over. With
 * `strict`, GP_INVALID when anything is missing or unexpected; else what is
 * missing keeps its value and the report tells. A tensor of another shape, or a
 * file with nothing of ours, is always GP_INVALID: "features.0.0.weight: file
 * has 64x3x3x3, model wants 32x3x3x3"; one line tells of all three. On failure
 * no value has changed. `report` may be NULL.
 */
enum gp_status gp_weights_load(struct gp_weights *w, const char *path, bool strict, struct gp_weights_report *report,
			       struct gp_err *err);
/*
 * The same, strict, but names that match `skip` (comma-separated globs,
 * fnmatch(3), "classifier.*") are left out: such parameters keep their values,
 * such tensors of the file are not looked at. A glob may have a parameter's name
 * or the one that its tensor has in the file. GP_INVALID when one of the globs
 * matches nothing.
 */
enum gp_status gp_weights_load_except(struct gp_weights *w, const char *path, const char *skip,
				      struct gp_weights_report *report, struct gp_err *err);
/* Whether one of such globs matches the name. */
bool gp_weights_are_skipped(const char *skip, const char *name);
/* What Hugging Face's files call a parameter that they have a name of their own for; else the parameter's name. */
const char *gp_weights_file_name(const char *param);
/* All values, atomically, those of tied weights (gp_graph_tie) once. Metadata: format=pt, model=the graph's name. */
enum gp_status gp_weights_save(const struct gp_weights *w, const char *path, struct gp_err *err);
#define GP_WEIGHTS_PAIRS 16
/* The same with further metadata, at most GP_WEIGHTS_PAIRS. */
enum gp_status gp_weights_save_with(const struct gp_weights *w, const char *path, const struct gp_st_pair *more,
				    int count, struct gp_err *err);

#define GP_SHA256_HEX 65

/*
 * SHA-256 over the little-endian fp32 bytes of all parameters and running
 * statistics, in byte-wise order of their names: what `train --json`
 * calls param_sha256. Names and shapes are not hashed.
 */
enum gp_status gp_weights_sha256(const struct gp_weights *w, char hex[GP_SHA256_HEX], struct gp_err *err);

#endif
