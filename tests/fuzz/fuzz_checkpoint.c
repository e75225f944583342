/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any bytes give a refused manifest or one whose fields are within
 * their limits and whose own text is read as the same manifest
 * (common/store/manifest.h).
 */
#include <string.h>

#include "common/store/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_pairs(const struct gp_pairs *p)
{
	gp_require(p->count >= 0 && p->count <= GP_MANIFEST_PAIRS);
	for (int i = 0; i < p->count; i++)
		gp_require(p->pair[i].key[0] && gp_pairs_find(p, p->pair[i].key) == p->pair[i].value);
}

static void check_same(const struct gp_manifest *a, const struct gp_manifest *b)
{
	struct gp_err err;
	gp_require(a->role == b->role && a->step == b->step && a->state_bytes == b->state_bytes);
	gp_require(a->state_hash == b->state_hash && memcmp(a->run_id, b->run_id, sizeof a->run_id) == 0);
	gp_require(gp_pairs_compare(&a->spec, &b->spec, "--", &err) == GP_OK);
	gp_require(gp_pairs_compare(&a->progress, &b->progress, "", &err) == GP_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_err err = {0};
	struct gp_manifest m, again;
	char *text;
	if (gp_manifest_parse(data, size, &m, &err) != GP_OK) {
		gp_require(err.text[0]);
		return 0;
	}
	gp_require(m.step <= GP_MANIFEST_STEP_MAX && m.state_bytes <= INT64_MAX);
	check_pairs(&m.spec);
	check_pairs(&m.progress);
	gp_require(gp_manifest_text(&m, &text, &err) == GP_OK);
	if (strlen(text) <= GP_MANIFEST_BYTES) { /* indented, it may have grown out of bounds */
		gp_require(gp_manifest_parse(text, strlen(text), &again, &err) == GP_OK);
		check_same(&m, &again);
		gp_manifest_deinit(&again);
	}
	free(text);
	gp_manifest_deinit(&m);
	return 0;
}
