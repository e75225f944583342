/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's checkpoint as another build might have written it: whole, with the
 * right sums, but a tensor is not there. Not a test by itself.
 */
#ifndef GP_TEST_LOSE_TENSOR_H
#define GP_TEST_LOSE_TENSOR_H

#include <stdio.h>
#include <string.h>

#include "common/store/checkpoint.h"
#include "common/base/mem.h"

/* Removes a tensor from the checkpoint of a run without credentials in the folder of --state-dir. */
static inline void lose_tensor(const char *state_dir, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
			       const char *name)
{
	char hex[GP_RUN_ID_HEX], dir[128];
	struct gp_err err = {0};
	struct gp_checkpoint *c;
	int kept = 0;
	gp_run_id_text(run, hex);
	snprintf(dir, sizeof dir, "%s/%s", state_dir, hex);
	if (gp_checkpoint_open(dir, step, &c, &err) != GP_OK)
		fail_msg("%s", err.text);
	const int count = gp_st_count(c->state);
	struct gp_st_item *item = gp_calloc((size_t)count, sizeof *item);
	for (int i = 0; i < count; i++) {
		const struct gp_st_tensor *t = gp_st_at(c->state, i);
		if (strcmp(t->name, name) != 0)
			item[kept++] = (struct gp_st_item){t->name, t->shape, t->data, t->dtype};
	}
	assert_int_equal(kept, count - 1);
	if (gp_checkpoint_write(dir, &c->manifest, item, kept, NULL, &err) != GP_OK)
		fail_msg("%s", err.text);
	gp_checkpoint_close(c);
	gp_free(item);
}

#endif
