/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of devices, and opening one by its name. See common/device.h.
 * Test: tests/unit/test_cpu_plan.c
 */
#include "common/device.h"

#include <string.h>

#include "kernels/cpu/dev_cpu.h"

#define MAX_THREADS 1024

/* In the order in which `auto` tries them. A device this build lacks stays listed, with `ops` NULL. */
static const struct device_row {
	const char *name;
	const struct gp_device_ops *ops;
} devices[] = {
	{"cuda", NULL},
	{"cpu", &gp_cpu_device_ops},
};
#define DEVICES (sizeof devices / sizeof devices[0])

bool gp_device_supports(const struct gp_device *dev, enum gp_precision precision)
{
	if (!dev->ops->supports)
		return precision == GP_PRECISION_FP32;
	return dev->ops->supports(dev, precision);
}

const char *gp_precision_name(enum gp_precision precision)
{
	static const char *const names[GP_PRECISIONS] = {"fp32", "bf16", "tf32"};
	return precision < GP_PRECISIONS ? names[precision] : "?";
}

const char *gp_device_title(const struct gp_device *dev, char text[GP_DEVICE_TITLE])
{
	snprintf(text, GP_DEVICE_TITLE, dev->card[0] ? "%s (%s)" : "%s", dev->name, dev->card);
	return text;
}

static enum gp_status open_row(const struct device_row *row, const char *arg, int threads, struct gp_device **out,
			       struct gp_err *err)
{
	struct gp_device *dev;
	GP_TRY(row->ops->open(arg, threads, &dev, err));
	if (!dev->name[0])
		snprintf(dev->name, sizeof dev->name, "%s", row->name);
	*out = dev;
	return GP_OK;
}

static enum gp_status open_auto(int threads, struct gp_device **out, struct gp_err *err)
{
	enum gp_status status = GP_DEVICE;
	for (size_t i = 0; i < DEVICES; i++) {
		if (!devices[i].ops)
			continue;
		status = open_row(&devices[i], NULL, threads, out, err);
		if (status == GP_OK)
			return GP_OK;
	}
	return status;
}

enum gp_status gp_device_open(const char *spec, int threads, struct gp_device **out, struct gp_err *err)
{
	if (threads < 1 || threads > MAX_THREADS)
		GP_FAIL(err, GP_USAGE, "compute threads: %d; it must be in 1..%d", threads, MAX_THREADS);
	if (strcmp(spec, "auto") == 0)
		return open_auto(threads, out, err);
	size_t len = strcspn(spec, ":");
	for (size_t i = 0; i < DEVICES; i++) {
		if (strlen(devices[i].name) != len || strncmp(devices[i].name, spec, len) != 0)
			continue;
		if (!devices[i].ops)
			GP_FAIL(err, GP_DEVICE, "this build has no CUDA device (asked for \"%.32s\"); use cpu or auto",
				spec);
		return open_row(&devices[i], spec[len] ? spec + len + 1 : NULL, threads, out, err);
	}
	GP_FAIL(err, GP_USAGE, "unknown device \"%.32s\"; devices: auto, cpu, cuda[:N]", spec);
}
