/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on their way to a descriptor, which a thread writes, so that whoever puts a line waits for nobody who reads. The
 * queue has GP_LOG_QUEUE_BYTES; a line that does not fit is left out and counted, and as soon as there is room again a line
 * of the owner's says how many there were.
 *
 * Threads: any, but new, stop and free are one caller's. Test: tests/unit/test_log_queue.c
 */
#ifndef GP_LOG_QUEUE_H
#define GP_LOG_QUEUE_H

#include <stddef.h>

#include "common/base/status.h"

#define GP_LOG_QUEUE_BYTES (256u << 10)

struct gp_log_queue;

/* `left_out` writes a line about so many lines, with its end, into out[size] and returns its length; it runs on the queue's
 * thread. */
enum gp_status gp_log_queue_new(int fd, size_t (*left_out)(uint64_t lines, char *out, size_t size),
				struct gp_log_queue **out, struct gp_err *err);
/* A whole line with its end. Behind a stop that came to an end, whoever puts a line writes it. */
void gp_log_queue_put(struct gp_log_queue *q, const char *line, size_t length);
uint64_t gp_log_queue_dropped(struct gp_log_queue *q);
/* Waits until everything is written, for so long at most. True: it was, and the thread is gone; false: a write is stuck, so
 * that its thread stays, and may be waited for again. */
bool gp_log_queue_stop(struct gp_log_queue *q, double seconds);
/* After a stop that said true, where no thread can put a line any more. */
void gp_log_queue_free(struct gp_log_queue *q);

#endif
