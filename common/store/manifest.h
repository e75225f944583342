/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest of a checkpoint (checkpoint.h): what it is of, in JSON. A file
 * is not trusted: everything is checked before anything is handed out.
 *
 *   {"format": 1, "role": "client", "run": "<32 hex digits>", "step": 300,
 *    "state_bytes": 1234, "state_xxh3": "<16 hex digits>",
 *    "spec": {"batch": "64", ...}, "progress": {...}}
 *
 * `spec` is what a run cannot change when it goes on; `progress` is what else
 * there is to know at that step. Both map names to texts.
 *
 * Threads: any, one at a time for a manifest. Tests: tests/unit/test_checkpoint.c,
 * tests/fuzz/fuzz_checkpoint.c
 */
#ifndef GP_MANIFEST_H
#define GP_MANIFEST_H

#include <jansson.h>

#include "common/store/safetensors.h"

#define GP_RUN_ID_BYTES      16
#define GP_RUN_ID_HEX        (2 * GP_RUN_ID_BYTES + 1)
#define GP_MANIFEST_STEP_MAX 999999999999ULL
#define GP_MANIFEST_PAIRS    64
#define GP_MANIFEST_VALUE    8192       /* most bytes of a pair's value */
#define GP_MANIFEST_BYTES    (1u << 20) /* most of a file */

enum gp_manifest_role { GP_MANIFEST_CLIENT, GP_MANIFEST_SERVER };

struct gp_pairs {
	struct gp_st_pair pair[GP_MANIFEST_PAIRS];
	int count;
};

/* Plain data when it is to be written; parsed ones own their texts. */
struct gp_manifest {
	enum gp_manifest_role role;
	uint8_t run_id[GP_RUN_ID_BYTES];
	uint64_t step;
	uint64_t state_bytes, state_hash; /* of the tensor file; hash: XXH3-64 */
	struct gp_pairs spec, progress;
	/* (optional) metadata for the tensor file when it is written; it is no part of the manifest, and not read back with it */
	const struct gp_st_pair *state_meta;
	int state_meta_count;
	json_t *json;
};

enum gp_status gp_manifest_parse(const void *bytes, size_t len, struct gp_manifest *out, struct gp_err *err);
void gp_manifest_deinit(struct gp_manifest *m);
/* The JSON text, ended by a line feed; free with free(). */
enum gp_status gp_manifest_text(const struct gp_manifest *m, char **out, struct gp_err *err);

/* Whether a pair's value can be read again: UTF-8 without control characters, of at most GP_MANIFEST_VALUE bytes. */
bool gp_manifest_takes(const char *value);
/* The text of that name; NULL when it is not there. */
const char *gp_pairs_find(const struct gp_pairs *p, const char *key);
void gp_pairs_add(struct gp_pairs *p, const char *key, const char *value);
/*
 * GP_INVALID, with the first name that differs, "DASHES" before it: "--batch is 128, but the run has it at 64". Names that
 * only one side has are refused, too: a setting was added or left out, or another version wrote the checkpoint. Those that only
 * the run has come first, as a setting that was left out may change other values, such as the graph.
 */
enum gp_status gp_pairs_compare(const struct gp_pairs *run, const struct gp_pairs *now, const char *dashes,
				struct gp_err *err);

/* hex[GP_RUN_ID_HEX] */
void gp_run_id_text(const uint8_t id[GP_RUN_ID_BYTES], char *hex);
/* Exactly 32 lower-case digits. */
bool gp_run_id_parse(const char *hex, uint8_t id[GP_RUN_ID_BYTES]);

#endif
