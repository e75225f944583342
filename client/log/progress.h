/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress line. On a terminal it is rewritten in place, at most five times
 * a second; elsewhere (a log file, a pipe) it is a plain line every few seconds.
 * It goes to stderr: stdout belongs to results. The caller makes the text.
 *
 * The newest text is kept, shown or not, for SIGUSR1: a thread that does nothing
 * else prints it then, whatever the program waits for.
 *
 * Threads: one, always the same. Test: tests/unit/test_progress.c
 */
#ifndef GP_PROGRESS_H
#define GP_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct gp_progress {
	FILE *to;          /* NULL: quiet */
	bool in_place;     /* a terminal that can rewrite its line */
	uint64_t every_ns; /* least time between two lines */
	uint64_t shown_ns; /* when the last one was written */
	bool shown;        /* something was written at all */
	bool open;         /* the terminal's line is ours: no newline yet */
};

/* `to` is stderr, or NULL for none. plain_every_s: seconds between lines where it is not a terminal. */
void gp_progress_init(struct gp_progress *p, FILE *to, double plain_every_s);
/* True when a line may be shown at `now_ns` (gp_now_ns). The first is always due. */
bool gp_progress_due(const struct gp_progress *p, uint64_t now_ns);
/* Keeps `text` (one line, no newline), and shows it if it is due. */
void gp_progress_update(struct gp_progress *p, uint64_t now_ns, const char *text);
/* Takes the line off the terminal before something else is written to stderr. */
void gp_progress_clear(struct gp_progress *p);
/* Shows the last text in any case (NULL: leaves what is there) and ends the line. */
void gp_progress_finish(struct gp_progress *p, const char *text);

/* Before any other thread is made: from here on SIGUSR1 prints the newest text on stderr, and never ends the process. `program`:
 * whose progress it is. */
void gp_progress_answer_signal(const char *program);

#endif
