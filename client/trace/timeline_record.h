/* SPDX-License-Identifier: Apache-2.0
 *
 * The times of a few whole steps, for the log (--log-json): of the 2nd, 4th, 8th, 16th, ... step of a process, so
 * that a run of any length has few of them, and each is written once. A step is whole when the one behind it has
 * ended: by then the server has told of its own stages. Of steps with very many chunks the intervals noted last are
 * left out.
 *
 * Threads: the engine's own. Notes allocate nothing. Test: tests/unit/test_timeline.c
 */
#ifndef GP_TIMELINE_RECORD_H
#define GP_TIMELINE_RECORD_H

#include <jansson.h>

#include "common/wire/interval.h"

#define GP_TIMELINE_RECORD_MOST 2048 /* intervals of a step */

struct gp_timeline_record;

enum gp_status gp_timeline_record_new(uint32_t chunks, struct gp_timeline_record **out, struct gp_err *err);
void gp_timeline_record_free(struct gp_timeline_record *r);
/* The process goes on behind so many steps: what was noted is forgotten. */
void gp_timeline_record_begin(struct gp_timeline_record *r, uint64_t steps);
/* By this side's clock. `record` is a struct gp_timeline_record, as for gp_timeline_watch; NULL takes every note and drops
 * it. */
void gp_timeline_record_note(void *record, const struct gp_interval *i);
/* So many steps are done, all of what the last one did included where `ended`. The keys of an event "timeline", a
 * new reference, or NULL: there is none yet. It is given once. */
json_t *gp_timeline_record_take(struct gp_timeline_record *r, uint64_t steps, bool ended);

#endif
