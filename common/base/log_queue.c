/* SPDX-License-Identifier: Apache-2.0
 *
 * See log_queue.h. Test: tests/unit/test_log_queue.c
 */
#include "common/base/log_queue.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"

#define LINE_BYTES  512
#define WRITE_BYTES 4096 /* at a time: what waits behind it can be left out */

struct gp_log_queue {
	int fd;
	size_t (*left_out)(uint64_t lines, char *out, size_t size);
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t put, idle;
	/* with the mutex: a ring; `written` counts bytes that are written, `end` those that were put */
	uint64_t written, end;
	uint64_t dropped, untold;
	bool stopping, over;
	char ring[GP_LOG_QUEUE_BYTES];
};

/* With the mutex. */
static bool has_room(const struct gp_log_queue *q, size_t length)
{
	return length <= GP_LOG_QUEUE_BYTES - (size_t)(q->end - q->written);
}

static void copy_in(struct gp_log_queue *q, const char *line, size_t length)
{
	const size_t at = q->end % GP_LOG_QUEUE_BYTES;
	const size_t first = length < GP_LOG_QUEUE_BYTES - at ? length : GP_LOG_QUEUE_BYTES - at;
	memcpy(q->ring + at, line, first);
	memcpy(q->ring, line + first, length - first);
	q->end += length;
}

/* Before anything that was put later. */
static void tell_left_out(struct gp_log_queue *q)
{
	char line[LINE_BYTES];
	if (q->untold == 0)
		return;
	const size_t length = q->left_out(q->untold, line, sizeof line);
	if (!has_room(q, length))
		return;
	copy_in(q, line, length);
	q->untold = 0;
}

/* Nobody hears of a line that cannot be written, so that it counts as written. */
static size_t write_some(int fd, const char *from, size_t length)
{
	const ssize_t n = write(fd, from, length);
	if (n < 0 && errno == EINTR)
		return 0;
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) { /* whoever gave us stderr has it so */
		const struct timespec moment = {0, 10000000};
		nanosleep(&moment, NULL);
		return 0;
	}
	return n < 0 ? length : (size_t)n;
}

void gp_log_queue_put(struct gp_log_queue *q, const char *line, size_t length)
{
	pthread_mutex_lock(&q->mutex);
	if (q->over) {
		pthread_mutex_unlock(&q->mutex);
		write_some(q->fd, line, length);
		return;
	}
	tell_left_out(q);
	if (q->untold == 0 && has_room(q, length)) {
		copy_in(q, line, length);
		pthread_cond_signal(&q->put);
	} else {
		q->untold++;
		q->dropped++;
	}
	pthread_mutex_unlock(&q->mutex);
}

uint64_t gp_log_queue_dropped(struct gp_log_queue *q)
{
	pthread_mutex_lock(&q->mutex);
	const uint64_t dropped = q->dropped;
	pthread_mutex_unlock(&q->mutex);
	return dropped;
}

/* With the mutex, which it gives away while it writes. Bytes that are not written yet are overwritten by nobody. */
static void write_next(struct gp_log_queue *q)
{
	const size_t at = q->written % GP_LOG_QUEUE_BYTES, waiting = (size_t)(q->end - q->written);
	size_t length = waiting < GP_LOG_QUEUE_BYTES - at ? waiting : GP_LOG_QUEUE_BYTES - at;
	length = length < WRITE_BYTES ? length : WRITE_BYTES;
	const char *end = memrchr(q->ring + at, '\n', length); /* lines stay whole where others write there, too */
	length = end ? (size_t)(end + 1 - (q->ring + at)) : length;
	pthread_mutex_unlock(&q->mutex);
	const size_t n = write_some(q->fd, q->ring + at, length);
	pthread_mutex_lock(&q->mutex);
	q->written += n;
	tell_left_out(q);
}

static void *run(void *arg)
{
	struct gp_log_queue *q = arg;
	pthread_setname_np(pthread_self(), "gp-log");
	pthread_mutex_lock(&q->mutex);
	for (;;) {
		if (q->written < q->end)
			write_next(q);
		else if (q->stopping)
			break;
		else
			pthread_cond_wait(&q->put, &q->mutex);
	}
	q->over = true;
	pthread_cond_signal(&q->idle);
	pthread_mutex_unlock(&q->mutex);
	return NULL;
}

static void init_sync(struct gp_log_queue *q)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&q->mutex, NULL);
	pthread_cond_init(&q->put, NULL);
	pthread_cond_init(&q->idle, &attr);
	pthread_condattr_destroy(&attr);
}

void gp_log_queue_free(struct gp_log_queue *q)
{
	pthread_mutex_destroy(&q->mutex);
	pthread_cond_destroy(&q->put);
	pthread_cond_destroy(&q->idle);
	gp_free(q);
}

/* The program's signals are for its other threads. */
static int start_thread(struct gp_log_queue *q)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	const int code = pthread_create(&q->thread, NULL, run, q);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

enum gp_status gp_log_queue_new(int fd, size_t (*left_out)(uint64_t lines, char *out, size_t size),
				struct gp_log_queue **out, struct gp_err *err)
{
	struct gp_log_queue *q;
	GP_TRY(gp_alloc_array((void **)&q, 1, sizeof *q, err));
	q->fd = fd;
	q->left_out = left_out;
	init_sync(q);
	const int code = start_thread(q);
	if (code != 0) {
		gp_log_queue_free(q);
		GP_FAIL(err, GP_IO, "no thread for the log: %s", strerror(code));
	}
	*out = q;
	return GP_OK;
}

static bool await_over(struct gp_log_queue *q, double seconds)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	const double fraction = (double)until.tv_nsec * 1e-9 + seconds;
	until.tv_sec += (time_t)fraction;
	until.tv_nsec = (long)((fraction - (double)(time_t)fraction) * 1e9);
	pthread_mutex_lock(&q->mutex);
	q->stopping = true;
	pthread_cond_signal(&q->put);
	while (!q->over && pthread_cond_timedwait(&q->idle, &q->mutex, &until) == 0)
		;
	const bool over = q->over;
	pthread_mutex_unlock(&q->mutex);
	return over;
}

bool gp_log_queue_stop(struct gp_log_queue *q, double seconds)
{
	if (!await_over(q, seconds))
		return false;
	pthread_join(q->thread, NULL);
	return true;
}
