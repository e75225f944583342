/* SPDX-License-Identifier: Apache-2.0
 *
 * See trace.h. Test: tests/unit/test_trace.c, tests/e2e/trace.sh
 */
#include "client/trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/trace/trace_picture.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#define QUEUE_EVENTS 16384 /* some steps of a hundred chunks */
#define WAIT_MS      100
#define FILES_MOST   10000

enum kind { INTERVAL, CLOCK };

struct event {
	enum kind kind;
	uint32_t chunks;
	struct gp_interval i;
	struct gp_clock_estimate clock;
};

struct gp_trace {
	struct gp_trace_spec spec;
	char path[GP_TRACE_PATH];
	pthread_t thread;
	pthread_mutex_t lock; /* of the queue, and of what the thread leaves behind */
	pthread_cond_t work;
	struct event *queue; /* a ring */
	unsigned head, count;
	bool ending;
	uint64_t dropped; /* events that found the queue full */
	bool others;      /* there were events of steps that are not wanted; of the thread that calls gp_trace_put */
	/* the thread's */
	struct gp_trace_picture picture;
	bool any; /* events: not only names of rows */
};

/* --- the thread --------------------------------------------------------------------------------------------------------- */

enum taken { NOTHING, AN_EVENT, THE_END };

static struct timespec after_ms(long ms)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += ms * 1000000L;
	t.tv_sec += t.tv_nsec / 1000000000L;
	t.tv_nsec %= 1000000000L;
	return t;
}

/* Looks for events now and then: whoever puts one wakes nobody. */
static enum taken take_event(struct gp_trace *t, struct event *out)
{
	enum taken taken = NOTHING;
	pthread_mutex_lock(&t->lock);
	if (t->count > 0) {
		*out = t->queue[t->head];
		t->head = (t->head + 1) % QUEUE_EVENTS;
		t->count--;
		taken = AN_EVENT;
	} else if (t->ending) {
		taken = THE_END;
	}
	pthread_mutex_unlock(&t->lock);
	return taken;
}

static void wait_for_events(struct gp_trace *t)
{
	const struct timespec until = after_ms(WAIT_MS);
	pthread_mutex_lock(&t->lock);
	if (t->count == 0 && !t->ending)
		pthread_cond_timedwait(&t->work, &t->lock, &until);
	pthread_mutex_unlock(&t->lock);
}

/* Whatever is queued is in the file before the thread waits for more: a killed process leaves whole events. */
static void *run(void *arg)
{
	struct gp_trace *t = arg;
	struct event e;
	enum taken taken;
	pthread_setname_np(pthread_self(), "gp-trace");
	gp_trace_picture_head(&t->picture, t->spec.split);
	while ((taken = take_event(t, &e)) != THE_END) {
		t->any |= taken == AN_EVENT;
		if (taken == NOTHING) {
			gp_trace_picture_flush(&t->picture);
			wait_for_events(t);
		} else if (e.kind == INTERVAL) {
			gp_trace_picture_interval(&t->picture, &e.i, e.chunks);
		} else {
			gp_trace_picture_clock(&t->picture, &e.clock, e.i.begin_ns);
		}
	}
	return NULL;
}

static void put(struct gp_trace *t, const struct event *e)
{
	pthread_mutex_lock(&t->lock);
	if (t->count < QUEUE_EVENTS)
		t->queue[(t->head + t->count++) % QUEUE_EVENTS] = *e;
	else
		t->dropped++;
	const bool much = t->count == QUEUE_EVENTS / 2;
	pthread_mutex_unlock(&t->lock);
	if (much)
		pthread_cond_signal(&t->work);
}

static bool is_wanted(const struct gp_trace *t, uint64_t step)
{
	return step >= t->spec.first && (t->spec.last == 0 || step <= t->spec.last);
}

void gp_trace_put(struct gp_trace *t, const struct gp_interval *i, uint32_t chunks)
{
	const struct event e = {.kind = INTERVAL, .chunks = chunks, .i = *i};
	if (i->stage >= GP_AT_STAGES || chunks == 0)
		return;
	if (is_wanted(t, i->number / chunks + 1))
		put(t, &e);
	else
		t->others = true;
}

void gp_trace_put_clock(struct gp_trace *t, const struct gp_clock_estimate *clock, uint64_t now_ns, uint64_t step)
{
	const struct event e = {.kind = CLOCK, .i = {.begin_ns = now_ns}, .clock = *clock};
	(void)step; /* of any: it holds for what follows */
	put(t, &e);
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

static bool holds_something(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
}

/* The name that the file gets. */
static enum gp_status choose_path(struct gp_trace *t, struct gp_err *err)
{
	int n = snprintf(t->path, sizeof t->path, "%s", t->spec.path);
	for (int k = 2; t->spec.resumed && k < FILES_MOST && n < (int)sizeof t->path && holds_something(t->path); k++)
		n = snprintf(t->path, sizeof t->path, "%s.%d", t->spec.path, k);
	if (n >= (int)sizeof t->path)
		GP_FAIL(err, GP_INVALID, "--trace: a name of %d bytes is too long", n);
	if (holds_something(t->path))
		GP_FAIL(err, GP_INVALID,
			"--trace: %s holds something already, which is not written over: give another name, or remove "
			"it",
			t->path);
	return GP_OK;
}

static enum gp_status open_file(struct gp_trace *t, struct gp_err *err)
{
	GP_TRY(choose_path(t, err));
	t->picture.fd = open(t->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (t->picture.fd < 0)
		GP_FAIL(err, GP_INVALID, "--trace: cannot create %s: %s", t->path, strerror(errno));
	return GP_OK;
}

static void free_trace(struct gp_trace *t)
{
	if (t->picture.fd >= 0)
		close(t->picture.fd);
	gp_free(t->queue);
	gp_trace_picture_deinit(&t->picture);
	gp_free(t);
}

static enum gp_status begin(struct gp_trace *t, struct gp_err *err)
{
	GP_TRY(gp_alloc_array((void **)&t->queue, QUEUE_EVENTS, sizeof *t->queue, err));
	GP_TRY(gp_trace_picture_init(&t->picture, err));
	GP_TRY(open_file(t, err));
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->work, NULL);
	t->picture.begin_ns = gp_now_ns();
	t->picture.path = t->path;
	t->picture.limit_bytes = t->spec.limit_bytes;
	const int code = pthread_create(&t->thread, NULL, run, t);
	if (code != 0)
		GP_FAIL(err, GP_NOMEM, "cannot begin a thread for --trace: %s", strerror(code));
	return GP_OK;
}

enum gp_status gp_trace_open(const struct gp_trace_spec *spec, struct gp_trace **out, struct gp_err *err)
{
	struct gp_trace *t;
	GP_TRY(gp_alloc_array((void **)&t, 1, sizeof *t, err));
	t->spec = *spec;
	t->picture.fd = -1;
	const enum gp_status status = begin(t, err);
	if (status != GP_OK) {
		free_trace(t);
		return status;
	}
	*out = t;
	return GP_OK;
}

const char *gp_trace_path(const struct gp_trace *t)
{
	return t->path;
}

/* A run that ends before its first step, as one that finds no server, can be tried again with the same command. */
static void remove_file(const struct gp_trace *t)
{
	struct stat st;
	if (stat(t->path, &st) == 0 && S_ISREG(st.st_mode) && unlink(t->path) != 0)
		gp_log(main, GP_LOG_DEBUG, "%s stays: %s", t->path, strerror(errno));
}

enum gp_status gp_trace_close(struct gp_trace *t, struct gp_err *err)
{
	if (!t)
		return GP_OK;
	pthread_mutex_lock(&t->lock);
	t->ending = true;
	pthread_mutex_unlock(&t->lock);
	pthread_cond_signal(&t->work);
	pthread_join(t->thread, NULL);
	gp_trace_picture_end(&t->picture, t->dropped);
	if (t->dropped > 0)
		gp_log(main, GP_LOG_WARN,
		       "trace %s: %llu events came faster than they could be written, and are missing", t->path,
		       (unsigned long long)t->dropped);
	enum gp_status status = GP_OK;
	if (close(t->picture.fd) != 0 && !t->picture.failed)
		t->picture.failed = errno;
	t->picture.fd = -1;
	if (t->picture.failed)
		status = gp_err_set(err, GP_IO, t->picture.failed, __FILE__, __LINE__, "cannot write trace %s: %s",
				    t->path, strerror(t->picture.failed));
	if (!t->any)
		remove_file(t);
	if (!t->any && t->others)
		gp_log(main, GP_LOG_WARN, "no trace is left: the run had none of the steps that --trace-steps names");
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->work);
	free_trace(t);
	return status;
}

/* --- --trace-steps ------------------------------------------------------------------------------------------------------- */

static bool read_number(const char **text, uint64_t *out)
{
	uint64_t n = 0;
	const char *at = *text;
	for (; *at >= '0' && *at <= '9' && n < UINT64_MAX / 20; at++)
		n = n * 10 + (uint64_t)(*at - '0');
	const bool any = at > *text;
	if (any)
		*out = n;
	*text = at;
	return any;
}

enum gp_status gp_trace_steps_read(const char *text, uint64_t *first, uint64_t *last, struct gp_err *err)
{
	const char *at = text;
	uint64_t from = 1, to = 0;
	const bool begins = read_number(&at, &from);
	const bool range = *at == ':';
	at += range;
	const bool ends = range && read_number(&at, &to);
	if (!range)
		to = from;
	if (*at || (!begins && !ends) || from < 1 || (ends && to < from) || (!range && to < 1))
		GP_FAIL(err, GP_USAGE,
			"--trace-steps: '%.40s' is no range of steps: write A:B from the first to the last one, "
			"counted from 1, or A:, :B or A",
			text);
	*first = from;
	*last = to;
	return GP_OK;
}
