/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines. See json_log.h. Test: tests/unit/test_json_log.c
 */
#include "client/log/json_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#define FAILURES_BYTES (1 << 20)

struct gp_json_log {
	int fd;
	char *path;
	pthread_mutex_t lock; /* around every line */
	int failed;           /* errno of the write that ended the log; 0: none */
	uint64_t begin_ns;
};

static bool is_event(const json_t *line, const char *event)
{
	const char *name = json_string_value(json_object_get(line, "event"));
	return name && strcmp(name, event) == 0;
}

/* A header that an error follows, once or several times: runs that ended before their first step, as one that finds
 * no server. A header alone is not enough: its run may be about to begin. */
static bool holds_failures_alone(FILE *f)
{
	char *text = NULL;
	size_t size = 0;
	ssize_t len;
	bool fits = true, header = false;
	while (fits && (len = getline(&text, &size, f)) > 0) {
		json_t *line = json_loadb(text, (size_t)len, 0, NULL);
		fits = is_event(line, header ? "error" : "header");
		header = !header;
		json_decref(line);
	}
	free(text);
	return fits && !header && feof(f);
}

static bool may_be_replaced(const char *path, off_t bytes)
{
	FILE *f = bytes <= FAILURES_BYTES ? fopen(path, "re") : NULL;
	if (!f)
		return false;
	const bool may = holds_failures_alone(f);
	fclose(f);
	return may;
}

/* What somebody has recorded is not written over. Devices and pipes hold nothing. */
static enum gp_status make_empty(const struct gp_json_log *l, struct gp_err *err)
{
	struct stat st;
	if (fstat(l->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		return GP_OK;
	if (!may_be_replaced(l->path, st.st_size) || ftruncate(l->fd, 0) != 0)
		GP_FAIL(err, GP_INVALID,
			"--log-json: %s holds a log already, which is not written over: give another name, or remove "
			"it (a run that goes on by --resume adds to its own)",
			l->path);
	return GP_OK;
}

static enum gp_status give_up(struct gp_json_log *l, enum gp_status status)
{
	if (l->fd >= 0)
		close(l->fd);
	gp_free(l->path);
	gp_free(l);
	return status;
}

/* A line that a power cut or another program left without its end stays by itself. */
static bool end_last_line(const struct gp_json_log *l)
{
	char last = '\n';
	struct stat st;
	const int fd = fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode) ? open(l->path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return true;
	if (st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) != 1)
		last = '\n';
	close(fd);
	return last == '\n' || pwrite(l->fd, "\n", 1, st.st_size) == 1;
}

enum gp_status gp_json_log_open(const char *path, bool append, struct gp_json_log **out, struct gp_err *err)
{
	struct gp_json_log *l = gp_calloc(1, sizeof *l);
	char *copy = l ? gp_strdup(path) : NULL;
	if (!copy) {
		gp_free(l);
		GP_FAIL(err, GP_NOMEM, "out of memory for the JSON log");
	}
	l->path = copy;
	l->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (l->fd < 0)
		return give_up(l, gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__,
					     "cannot create JSON log %s: %s", path, strerror(errno)));
	if (!append && make_empty(l, err) != GP_OK)
		return give_up(l, err->code);
	if (append && !end_last_line(l))
		return give_up(l, gp_err_set(err, GP_IO, errno, __FILE__, __LINE__, "cannot write JSON log %s: %s",
					     path, strerror(errno)));
	l->begin_ns = gp_now_ns();
	pthread_mutex_init(&l->lock, NULL);
	*out = l;
	return GP_OK;
}

static enum gp_status write_failed(const struct gp_json_log *l, struct gp_err *err)
{
	return gp_err_set(err, GP_IO, l->failed, __FILE__, __LINE__,
			  "cannot write JSON log %s: %s; no more lines follow", l->path, strerror(l->failed));
}

static ssize_t write_some(int fd, const char *text, size_t len)
{
	ssize_t n;
	if (gp_fault_hit(GP_FAULT_WRITE)) {
		errno = ENOSPC;
		return -1;
	}
	do {
		n = write(fd, text, len);
	} while (n < 0 && errno == EINTR);
	return n;
}

/* Takes back the begun line at the end of a file, unless another process has written behind it. */
static void take_back(const struct gp_json_log *l, size_t len)
{
	struct stat st;
	const off_t end = lseek(l->fd, 0, SEEK_CUR);
	if (len > 0 && (fstat(l->fd, &st) != 0 || st.st_size != end || ftruncate(l->fd, end - (off_t)len) != 0))
		gp_log(main, GP_LOG_DEBUG, "%s: half a line is left", l->path);
}

/* 0, or what went wrong: then nothing of the line is left in a file (a pipe may have had some of it). */
static int write_bytes(const struct gp_json_log *l, const char *text, size_t len)
{
	size_t done = 0;
	while (done < len) {
		ssize_t n = write_some(l->fd, text + done, len - done);
		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		int why = n < 0 ? errno : EIO;
		take_back(l, done);
		return why;
	}
	return 0;
}

/* The line feed takes the place of the text's end. */
static int write_line(struct gp_json_log *l, const json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);
	if (!text)
		return ENOMEM;
	size_t len = strlen(text);
	text[len] = '\n';
	int why = write_bytes(l, text, len + 1);
	free(text);
	return why;
}

static void time_text(char out[64])
{
	struct timespec ts;
	struct tm tm;
	char seconds[24];
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out, 64, "%s.%03ldZ", seconds, ts.tv_nsec / 1000000);
}

/* Takes `object`; NULL when memory is out. */
static json_t *stamped(const struct gp_json_log *l, const char *event, json_t *object)
{
	char now[64];
	time_text(now);
	json_t *line = object ? json_pack("{s:s, s:f, s:s}", "time", now, "elapsed_s",
					  (double)(gp_now_ns() - l->begin_ns) * 1e-9, "event", event)
			      : NULL;
	if (line && json_object_update(line, object) != 0) {
		json_decref(line);
		line = NULL;
	}
	json_decref(object);
	return line;
}

enum gp_status gp_json_log_write(struct gp_json_log *l, const char *event, json_t *object, struct gp_err *err)
{
	enum gp_status status = GP_OK;
	if (!l) {
		json_decref(object);
		return GP_OK;
	}
	object = stamped(l, event, object);
	if (!object)
		GP_FAIL(err, GP_NOMEM, "out of memory for a line of JSON log %s", l->path);
	pthread_mutex_lock(&l->lock);
	if (!l->failed) {
		l->failed = write_line(l, object);
		if (l->failed)
			status = write_failed(l, err);
	}
	pthread_mutex_unlock(&l->lock);
	json_decref(object);
	return status;
}

enum gp_status gp_json_log_close(struct gp_json_log *l, struct gp_err *err)
{
	enum gp_status status = GP_OK;
	if (!l)
		return GP_OK;
	if (close(l->fd) != 0 && !l->failed)
		l->failed = errno;
	if (l->failed)
		status = write_failed(l, err);
	pthread_mutex_destroy(&l->lock);
	gp_free(l->path);
	gp_free(l);
	return status;
}
