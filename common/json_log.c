/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines. See json_log.h. Test: tests/unit/test_json_log.c
 */
#include "common/json_log.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "common/fault.h"
#include "common/mem.h"

struct gp_json_log {
	FILE *file;
	char *path;
	pthread_mutex_t lock; /* around every line */
	bool failed;
};

enum gp_status gp_json_log_open(const char *path, struct gp_json_log **out, struct gp_err *err)
{
	struct gp_json_log *l = gp_calloc(1, sizeof *l);
	char *copy = l ? gp_strdup(path) : NULL;
	if (!copy) {
		gp_free(l);
		GP_FAIL(err, GP_NOMEM, "out of memory for the JSON log");
	}
	l->path = copy;
	l->file = fopen(path, "we");
	if (!l->file) {
		gp_err_set(err, GP_INVALID, errno, __FILE__, __LINE__, "cannot create JSON log %s: %s", path,
			   strerror(errno));
		gp_free(copy);
		gp_free(l);
		return err->code;
	}
	pthread_mutex_init(&l->lock, NULL);
	*out = l;
	return GP_OK;
}

static enum gp_status write_failed(const struct gp_json_log *l, int code, struct gp_err *err)
{
	return gp_err_set(err, GP_IO, code, __FILE__, __LINE__, "cannot write JSON log %s: %s", l->path,
			  strerror(code));
}

static bool write_line(FILE *file, const json_t *object)
{
	if (gp_fault_hit(GP_FAULT_WRITE)) {
		errno = ENOSPC;
		return false;
	}
	errno = 0;
	return json_dumpf(object, file, JSON_COMPACT) == 0 && fputc('\n', file) != EOF && fflush(file) == 0;
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
	if (!l->failed && !write_line(l->file, object)) {
		l->failed = true;
		status = write_failed(l, errno ? errno : EIO, err);
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
	if (fclose(l->file) != 0 && !l->failed)
		status = write_failed(l, errno, err);
	pthread_mutex_destroy(&l->lock);
	gp_free(l->path);
	gp_free(l);
	return status;
}
