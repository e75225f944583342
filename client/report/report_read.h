/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a log of --log-json for a report, line by line.
 *
 * Threads: any. Tests: tests/unit/test_report.c; fuzz: fuzz_report_log.c
 */
#ifndef GP_REPORT_READ_H
#define GP_REPORT_READ_H

#include "client/report/report_run.h"

/* Bytes of a line; one with the pictures of an attack is the longest. */
#define GP_REPORT_LINE_MOST  (16u << 20)
/* Commas, colons and opening brackets of a line: each value takes a hundred times the memory of its "{}". */
#define GP_REPORT_LINE_MARKS (256u << 10)

/*
 * r: as gp_report_run_init leaves it. A last line that breaks off, as a killed run leaves it, is left out, and a
 * notice says so; the same of one that a header follows, where such a run was resumed. GP_INVALID names the file, the
 * line, and what to do.
 */
enum gp_status gp_report_read(const char *path, struct gp_report_run *r, struct gp_err *err);

#endif
