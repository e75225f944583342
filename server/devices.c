/* SPDX-License-Identifier: Apache-2.0
 *
 * See devices.h. Test: tests/unit/test_server_devices.c
 */
#include "server/devices.h"

#include <string.h>

#include "common/base/log.h"
#include "kernels/device_registry.h"

#define KEPT_BACK 32 /* a part in so many of a device's free memory, for what its driver takes later */

static double mib(uint64_t bytes)
{
	return (double)bytes / 1048576;
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

static enum gp_status count_memory(struct gp_server_device *at, struct gp_err *err)
{
	uint64_t total, unused;
	if (!at->dev->ops->memory)
		return GP_OK;
	GP_TRY(at->dev->ops->memory(at->dev, &total, &unused, err));
	at->memory_bytes = unused - unused / KEPT_BACK;
	if (at->memory_bytes == 0)
		GP_FAIL(err, GP_DEVICE, "%s has no memory left", at->dev->name);
	return GP_OK;
}

static enum gp_status check_new(const struct gp_server_devices *d, const struct gp_device *dev, struct gp_err *err)
{
	for (int i = 0; i < d->count; i++)
		if (strcmp(d->device[i].dev->name, dev->name) == 0)
			GP_FAIL(err, GP_USAGE, "--device names %s twice", dev->name);
	if (d->count > 0 && (!dev->ops->memory || !d->device[0].memory_bytes))
		GP_FAIL(err, GP_USAGE, "--device: %s and %s cannot serve together; only GPUs can",
			d->device[0].dev->name, dev->name);
	return GP_OK;
}

static enum gp_status open_worker(struct gp_server_devices *d, uv_loop_t *loop, struct gp_server_device *at,
				  struct gp_err *err)
{
	char name[32] = "gp-compute";
	if (d->count > 0) /* several devices: the thread's name tells of which it is */
		snprintf(name, sizeof name, "gp-compute%d", d->count);
	return gp_worker_new(loop, name, 1, &at->compute, err);
}

/* What was made stays in *at on failure. */
static enum gp_status open_one(struct gp_server_devices *d, uv_loop_t *loop, const char *name, int threads,
			       struct gp_server_device *at, struct gp_err *err)
{
	GP_TRY(gp_device_open(name, threads, &at->dev, err));
	if (at->dev->passed[0])
		gp_log(main, GP_LOG_INFO, "computes on %s: %s", at->dev->name, at->dev->passed);
	GP_TRY(check_new(d, at->dev, err));
	GP_TRY(count_memory(at, err));
	GP_TRY(gp_device_measure(at->dev, err));
	return open_worker(d, loop, at, err);
}

static enum gp_status open_named(struct gp_server_devices *d, uv_loop_t *loop, const char *name, size_t len,
				 int threads, struct gp_err *err)
{
	char text[2 * GP_DEVICE_NAME];
	if (d->count == GP_SERVER_DEVICES_MAX)
		GP_FAIL(err, GP_USAGE, "--device names more than %d devices", GP_SERVER_DEVICES_MAX);
	snprintf(text, sizeof text, "%.*s", (int)len, name);
	struct gp_server_device *at = &d->device[d->count];
	enum gp_status status = open_one(d, loop, text, threads, at, err);
	if (status == GP_OK)
		d->count++;
	else if (at->dev) {
		at->dev->ops->close(at->dev);
		memset(at, 0, sizeof *at);
	}
	return status;
}

enum gp_status gp_server_devices_open(struct gp_server_devices *d, uv_loop_t *loop, const char *spec, int threads,
				      struct gp_err *err)
{
	memset(d, 0, sizeof *d);
	for (const char *at = spec;; at++) {
		const size_t len = strcspn(at, ",");
		enum gp_status status = open_named(d, loop, at, len, threads, err);
		if (status != GP_OK) {
			gp_server_devices_close(d);
			return status;
		}
		at += len;
		if (!*at)
			return GP_OK;
	}
}

void gp_server_devices_close(struct gp_server_devices *d)
{
	for (int i = 0; i < d->count; i++) {
		gp_worker_free(d->device[i].compute);
		d->device[i].dev->ops->close(d->device[i].dev);
		d->device[i].compute = NULL;
		d->device[i].dev = NULL;
	}
	d->count = 0;
}

/* --- what they are ---------------------------------------------------------------------------------------------- */

const char *gp_server_devices_text(const struct gp_server_devices *d, char text[GP_SERVER_DEVICES_TEXT])
{
	char title[GP_DEVICE_TITLE];
	size_t len = 0;
	text[0] = '\0';
	for (int i = 0; i < d->count && len < GP_SERVER_DEVICES_TEXT; i++)
		len += (size_t)snprintf(text + len, GP_SERVER_DEVICES_TEXT - len, "%s%s", i ? ", " : "",
					gp_device_title(d->device[i].dev, title));
	return text;
}

bool gp_server_devices_apart(const struct gp_server_devices *d)
{
	return d->count > 0 && d->device[0].memory_bytes > 0;
}

struct gp_speed gp_server_devices_speed(const struct gp_server_devices *d)
{
	struct gp_speed least = d->device[0].dev->speed;
	for (int i = 1; i < d->count; i++) {
		const struct gp_speed *s = &d->device[i].dev->speed;
		least.macs_per_s = s->macs_per_s < least.macs_per_s ? s->macs_per_s : least.macs_per_s;
		least.elements_per_s = s->elements_per_s < least.elements_per_s ? s->elements_per_s
										: least.elements_per_s;
	}
	return least;
}

bool gp_server_devices_support(const struct gp_server_devices *d, enum gp_precision precision)
{
	for (int i = 0; i < d->count; i++)
		if (gp_device_supports(d->device[i].dev, precision))
			return true;
	return false;
}

/* --- placing ---------------------------------------------------------------------------------------------------- */

static bool works(const struct gp_server_device *at, struct gp_err *err)
{
	return !at->dev->ops->check || at->dev->ops->check(at->dev, err) == GP_OK;
}

static bool better(const struct gp_server_device *a, const struct gp_server_device *b)
{
	if (a->sessions != b->sessions)
		return a->sessions < b->sessions;
	return a->memory_bytes - a->used_bytes > b->memory_bytes - b->used_bytes;
}

enum gp_status gp_server_devices_choose(struct gp_server_devices *d, enum gp_precision precision, uint32_t tried,
					struct gp_server_device **out, struct gp_err *err)
{
	struct gp_server_device *best = NULL;
	struct gp_err why;
	bool failed = false;
	if (!gp_server_devices_support(d, precision)) {
		char text[GP_SERVER_DEVICES_TEXT];
		GP_FAIL(err, GP_UNSUPPORTED, "this server (%s) cannot compute in %s", gp_server_devices_text(d, text),
			gp_precision_name(precision));
	}
	for (int i = 0; i < d->count; i++) {
		struct gp_server_device *at = &d->device[i];
		if ((tried & gp_server_device_bit(d, at)) || !gp_device_supports(at->dev, precision))
			continue;
		if (!works(at, &why))
			failed = true;
		else if (!best || better(at, best))
			best = at;
	}
	if (!best && failed)
		GP_FAIL(err, GP_DEVICE, "the server's device has failed, gpserverd has to be started again: %s",
			why.text);
	if (!best)
		GP_FAIL(err, GP_BUSY, "no device of the server has room for this session");
	best->sessions++;
	*out = best;
	return GP_OK;
}

static enum gp_status check_unused(const struct gp_server_device *at, uint64_t bytes, struct gp_err *err)
{
	uint64_t total, unused;
	GP_TRY(at->dev->ops->memory(at->dev, &total, &unused, err));
	if (bytes > unused)
		GP_FAIL(err, GP_BUSY, "this session needs %.0f MiB of the memory of %s, but %.0f MiB of it are free",
			mib(bytes), at->dev->name, mib(unused));
	return GP_OK;
}

static enum gp_status check_room(const struct gp_server_devices *d, const struct gp_server_device *at, uint64_t had,
				 uint64_t bytes, struct gp_err *err)
{
	const bool quota = d->session_bytes > 0 && d->session_bytes < at->memory_bytes;
	const uint64_t most = quota ? d->session_bytes : at->memory_bytes;
	const uint64_t left = at->memory_bytes - (at->used_bytes - had);
	if (bytes > most)
		GP_FAIL(err, GP_NOMEM,
			"this session needs %.0f MiB of the memory of %s, %s %.0f MiB; use smaller chunks or a "
			"smaller window",
			mib(bytes), at->dev->name, quota ? "the server allows" : "which has", mib(most));
	if (bytes > left)
		GP_FAIL(err, GP_BUSY,
			"this session needs %.0f MiB of the memory of %s, but other sessions have left %.0f MiB",
			mib(bytes), at->dev->name, mib(left));
	return check_unused(at, bytes, err);
}

enum gp_status gp_server_device_reserve(struct gp_server_devices *d, struct gp_server_device *at, uint64_t had,
					uint64_t bytes, struct gp_err *err)
{
	if (at->memory_bytes > 0)
		GP_TRY(check_room(d, at, had, bytes, err));
	at->used_bytes += bytes - had;
	return GP_OK;
}

void gp_server_device_leave(struct gp_server_device *at, uint64_t had)
{
	at->used_bytes -= had;
	at->sessions--;
}

void gp_server_device_failed(struct gp_server_device *at)
{
	struct gp_err err;
	if (at->lost || works(at, &err))
		return;
	at->lost = true;
	gp_log(session, GP_LOG_ERROR, "%s takes no sessions until gpserverd is started again: %s", at->dev->name,
	       err.text);
}
