/* SPDX-License-Identifier: Apache-2.0
 *
 * A gate in a server's way: a call of one kind is held, on whichever thread it comes, until the test opens the gate. Who
 * waits is seen, so that a test knows when the server has come that far. Not a test by itself.
 */
#ifndef GP_TEST_GATE_H
#define GP_TEST_GATE_H

#include <pthread.h>

enum { GATE_OPEN = 0 }; /* the other kinds are the test's */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	int closed, waiting;
} gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, GATE_OPEN, 0};

/* What is held calls it. */
static inline void gate_pass(int kind)
{
	pthread_mutex_lock(&gate.mutex);
	gate.waiting += gate.closed == kind;
	pthread_cond_broadcast(&gate.changed);
	while (gate.closed == kind)
		pthread_cond_wait(&gate.changed, &gate.mutex);
	pthread_mutex_unlock(&gate.mutex);
}

/* Holds calls of this kind from here on, and no others. */
static inline void gate_set(int closed)
{
	pthread_mutex_lock(&gate.mutex);
	gate.closed = closed;
	gate.waiting = 0;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.mutex);
}

static inline void gate_until_somebody_waits(void)
{
	pthread_mutex_lock(&gate.mutex);
	while (gate.waiting == 0)
		pthread_cond_wait(&gate.changed, &gate.mutex);
	pthread_mutex_unlock(&gate.mutex);
}

#endif
