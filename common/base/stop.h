/* SPDX-License-Identifier: Apache-2.0
 *
 * A flag that asks what runs on other threads to come to an end: set once, for
 * good, and looked at between pieces of work.
 *
 * Threads: any. Test: tests/unit/test_graph_work.c, tests/unit/test_server_time.c
 */
#ifndef GP_STOP_H
#define GP_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Zeroed: not set. */
struct gp_stop {
	atomic_bool set;
};

static inline void gp_stop_set(struct gp_stop *s)
{
	atomic_store(&s->set, true);
}

/* NULL is never set. */
static inline bool gp_stop_is_set(const struct gp_stop *s)
{
	return s && atomic_load(&s->set);
}

#endif
