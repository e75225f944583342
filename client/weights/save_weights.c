/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing trained weights, somewhere. See save_weights.h.
 * Test: tests/e2e/saved_model.sh
 */
#include "client/weights/save_weights.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static bool save_in(const struct gp_weights *w, const char *folder, const struct gp_st_pair *meta, int count,
		    char path[PATH_MAX])
{
	struct gp_err ignored;
	const int n = snprintf(path, PATH_MAX, "%s/weights-not-saved-%ld.safetensors", folder, (long)getpid());
	return n < PATH_MAX && access(path, F_OK) != 0 && gp_weights_save_with(w, path, meta, count, &ignored) == GP_OK;
}

/* At once, and the whole path: the text of an error would cut it, and what follows may fail, too. */
static void tell(const struct gp_err *why, char path[PATH_MAX])
{
	gp_hide_control_characters(path);
	fprintf(stderr, "--save: %s; the trained weights are in %s instead\n", why->text, path);
	fflush(stderr);
}

enum gp_status gp_save_somewhere(const struct gp_weights *w, const char *path, const char *checkpoints,
				 const struct gp_st_pair *meta, int count, struct gp_err *err)
{
	const char *const folders[] = {checkpoints, ".", getenv("TMPDIR"), "/tmp"};
	char other[PATH_MAX];
	struct gp_err why;
	if (gp_weights_save_with(w, path, meta, count, &why) == GP_OK)
		return GP_OK;
	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
		if (folders[i] && *folders[i] && save_in(w, folders[i], meta, count, other)) {
			tell(&why, other);
			GP_FAIL(err, GP_IO, "--save: %.250s; the line above says where the weights are", why.text);
		}
	GP_FAIL(err, GP_IO, "--save: %.150s; the trained weights could be written nowhere%s", why.text,
		checkpoints ? ", but `gpclient model export` can take them from the checkpoints" : "");
}
