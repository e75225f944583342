/* SPDX-License-Identifier: Apache-2.0
 *
 * See disk_probe.h. Test: tests/unit/test_server_metrics.c
 */
#include "server/disk_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#define JOIN_S 1

struct gp_disk_probe {
	char *folder;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t stop;
	bool stopping, ended; /* with the mutex */
	bool left;            /* with the mutex: nobody waits for the thread, which frees all */
	atomic_bool well;
	atomic_uint_least64_t writing_ns; /* since when it writes; 0: it does not */
};

/* A file without a name leaves nothing behind. Where a file system has none, it must do that the folder may be written to. */
static bool try_to_write(const char *folder, int *code)
{
	static const char bytes[4096] = {1};
	const int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0) {
		const bool nameless = errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL;
		const bool may = !nameless && access(folder, W_OK) == 0;
		*code = errno;
		return may;
	}
	const ssize_t n = write(fd, bytes, sizeof bytes);
	*code = n < 0 ? errno : ENOSPC; /* where a part fits, the disk or the quota was full behind it */
	close(fd);
	return n == (ssize_t)sizeof bytes;
}

static void probe(struct gp_disk_probe *p)
{
	const bool before = atomic_load(&p->well);
	atomic_store(&p->writing_ns, gp_now_ns());
	int code = 0;
	const bool well = try_to_write(p->folder, &code);
	atomic_store(&p->writing_ns, 0);
	atomic_store(&p->well, well);
	if (before && !well)
		gp_log(main, GP_LOG_WARN, "--state-dir %s cannot be written to: %s", p->folder, strerror(code));
	else if (well && !before)
		gp_log(main, GP_LOG_INFO, "--state-dir %s can be written to again", p->folder);
}

static void free_probe(struct gp_disk_probe *p)
{
	pthread_mutex_destroy(&p->mutex);
	pthread_cond_destroy(&p->stop);
	gp_free(p->folder);
	gp_free(p);
}

static void *run(void *arg)
{
	struct gp_disk_probe *p = arg;
	struct timespec until;
	pthread_setname_np(pthread_self(), "gp-probe");
	pthread_mutex_lock(&p->mutex);
	while (!p->stopping) {
		pthread_mutex_unlock(&p->mutex);
		probe(p);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += GP_DISK_PROBE_S;
		pthread_mutex_lock(&p->mutex);
		while (!p->stopping && pthread_cond_timedwait(&p->stop, &p->mutex, &until) == 0)
			;
	}
	const bool left = p->left;
	p->ended = true;
	pthread_mutex_unlock(&p->mutex);
	if (left)
		free_probe(p);
	return NULL;
}

static void init_sync(struct gp_disk_probe *p)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&p->mutex, NULL);
	pthread_cond_init(&p->stop, &attr);
	pthread_condattr_destroy(&attr);
}

/* The program's signals are for its other threads. */
static int start_thread(struct gp_disk_probe *p)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	const int code = pthread_create(&p->thread, NULL, run, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return code;
}

enum gp_status gp_disk_probe_new(const char *folder, struct gp_disk_probe **out, struct gp_err *err)
{
	struct gp_disk_probe *p;
	GP_TRY(gp_alloc_array((void **)&p, 1, sizeof *p, err));
	init_sync(p);
	atomic_init(&p->well, true);
	p->folder = gp_strdup(folder);
	const int code = p->folder ? start_thread(p) : ENOMEM;
	if (code != 0) {
		free_probe(p);
		GP_FAIL(err, GP_IO, "no thread to watch --state-dir: %s", strerror(code));
	}
	*out = p;
	return GP_OK;
}

void gp_disk_probe_free(struct gp_disk_probe *p)
{
	struct timespec until;
	if (!p)
		return;
	pthread_mutex_lock(&p->mutex);
	p->stopping = true;
	pthread_cond_signal(&p->stop);
	pthread_mutex_unlock(&p->mutex);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += JOIN_S;
	if (pthread_timedjoin_np(p->thread, NULL, &until) == 0) {
		free_probe(p);
		return;
	}
	pthread_detach(p->thread);
	pthread_mutex_lock(&p->mutex);
	const bool ended = p->ended;
	p->left = true;
	pthread_mutex_unlock(&p->mutex);
	if (ended) /* just now, and it has not seen that it is to free all */
		free_probe(p);
}

bool gp_disk_probe_is_well(const struct gp_disk_probe *p, uint64_t now_ns)
{
	const uint64_t since = atomic_load(&p->writing_ns);
	const bool late = since > 0 && now_ns > since && now_ns - since > GP_DISK_PROBE_LATE_S * UINT64_C(1000000000);
	return atomic_load(&p->well) && !late;
}
