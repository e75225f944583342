/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines (--log-json FILE): one object per line, each line one write, so
 * that a reader can follow a run and a killed run leaves whole lines. A line
 * that a full disk cuts short is taken back. Lines are events, and each says
 * when it was. Not here: what the events are (client/log/run_log.h).
 *
 * Threads: any. Test: tests/unit/test_json_log.c
 */
#ifndef GP_JSON_LOG_H
#define GP_JSON_LOG_H

#include <jansson.h>

#include "common/base/status.h"

struct gp_json_log;

/* Creates `path`. A file that holds something already is added to with `append` (for a resumed run), on a line of its
 * own. Else GP_INVALID, unless it holds the events "header" and "error" alone, of runs that ended before they had
 * recorded a step: it begins anew. */
enum gp_status gp_json_log_open(const char *path, bool append, struct gp_json_log **out, struct gp_err *err);
/*
 * A line {"time":"2026-01-02T03:04:05.678Z","elapsed_s":1.25,"event":EVENT,...}, with the keys of `object` behind; the
 * seconds are those since the log was opened. Takes `object`, also on failure; NULL (jansson out of memory) is an error. A
 * NULL log accepts and drops everything.
 * A write error is returned once; after that the log takes nothing more, and every call succeeds.
 */
enum gp_status gp_json_log_write(struct gp_json_log *l, const char *event, json_t *object, struct gp_err *err);
/* Fails when anything could not be written, also where a write has failed for it before. NULL is fine. */
enum gp_status gp_json_log_close(struct gp_json_log *l, struct gp_err *err);

#endif
