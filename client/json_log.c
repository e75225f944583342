/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines. See json_log.h. Test: tests/unit/test_json_log.c
 */
#include "client/json_log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/fault.h"
#include "common/base/log.h"
#include "common/base/mem.h"

struct gp_json_log {
	int fd;
	char *path;
	pthread_mutex_t lock; /* around every line */
	off_t whole;          /* bytes of whole lines */
	int failed;           /* errno of the write that ended the log; 0: none */
};

enum gp_status gp_json_log_open(const char *path, bool append, struct gp_json_log **out, struct gp_err *err)
{
	struct gp_json_log *l = gp_calloc(1, sizeof *l);
	char *copy = l ? gp_strdup(path) : NULL;
	if (!copy) {
		gp_free(l);
		GP_FAIL(err, GP_NOMEM, "out of memory for the JSON log");
	}
	l->path = copy;
	l->fd = open(path, O_WRONLY | O_CREAT | (append ? 0 : O_TRUNC) | O_CLOEXEC, 0666);
	if (l->fd < 0) {
		gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__, "cannot create JSON log %s: %s", path,
			   strerror(errno));
		gp_free(copy);
		gp_free(l);
		return err->code;
	}
	l->whole = lseek(l->fd, 0, SEEK_END);
	if (l->whole < 0) /* a pipe */
		l->whole = 0;
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

/* 0, or what went wrong: then nothing of the line is left in a file (a pipe may have had some of it). */
static int write_bytes(struct gp_json_log *l, const char *text, size_t len)
{
	size_t done = 0;
	while (done < len) {
		ssize_t n = write_some(l->fd, text + done, len - done);
		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		int why = n < 0 ? errno : EIO;
		if (done > 0 && ftruncate(l->fd, l->whole) != 0)
			gp_log(main, GP_LOG_DEBUG, "%s: half a line is left: %s", l->path, strerror(errno));
		return why;
	}
	l->whole += (off_t)len;
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

enum gp_status gp_json_log_write(struct gp_json_log *l, json_t *object, struct gp_err *err)
{
	enum gp_status status = GP_OK;
	if (!l) {
		json_decref(object);
		return GP_OK;
	}
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
