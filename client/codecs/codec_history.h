/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rung of its ladder each direction has used since which step of the run. With a folder of checkpoints it is on
 * disk, too (DIR/codecs), and a change is there before COMMIT says it: steps that are done again after a broken link
 * or a killed process go through the codecs that they went through before.
 *
 * Threads: one at a time. Test: tests/unit/test_codec_history.c, tests/e2e/codec_auto.sh
 */
#ifndef GP_CODEC_HISTORY_H
#define GP_CODEC_HISTORY_H

#include "common/base/status.h"
#include "common/wire/direction.h"

struct gp_codec_history;

struct gp_codec_history_spec {
	const char *dir;               /* (optional) the run's folder, which this process has locked */
	const uint8_t *run_id;         /* with it */
	bool resumes;                  /* the folder has checkpoints of the run */
	int rungs[GP_DIRECTIONS];      /* of each ladder; 0: there is none */
	uint32_t first[GP_DIRECTIONS]; /* that a run begins with */
};

/* A run that begins has no more than that; what an older one has left in the folder goes. GP_INVALID: the file of a
 * run that goes on is missing or no such file. */
enum gp_status gp_codec_history_new(const struct gp_codec_history_spec *spec, struct gp_codec_history **out,
				    struct gp_err *err);
void gp_codec_history_free(struct gp_codec_history *h); /* NULL is fine */
/* The rungs behind so many steps. */
void gp_codec_history_at(const struct gp_codec_history *h, uint64_t steps, uint32_t rung[GP_DIRECTIONS]);
/* The last step that a change is known behind. */
uint64_t gp_codec_history_newest(const struct gp_codec_history *h);
/* A change behind so many steps, which are more than gp_codec_history_newest. It is on disk when this returns GP_OK;
 * else it is not known. */
enum gp_status gp_codec_history_add(struct gp_codec_history *h, uint64_t steps, const uint32_t rung[GP_DIRECTIONS],
				    struct gp_err *err);

#endif
