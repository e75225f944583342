/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of devices, and opening one by its name. See device_registry.h.
 * Test: tests/unit/test_cpu_plan.c
 */
#include "kernels/device_registry.h"

#include <string.h>

#include "kernels/cpu/plan/cpu_device.h"
#ifdef GP_CUDA_DEVICE
#include "kernels/cuda/plan/cuda_device.h"
#endif

#define MAX_THREADS 1024

static const struct gp_device_ops *cpu_ops(const char *name)
{
	(void)name;
	return &gp_cpu_device_ops;
}

/* A build has real GPUs or emulated ones. */
static const struct gp_device_ops *cuda_ops(const char *name)
{
#ifdef GP_CUDA_DEVICE
	if (strcmp(gp_cuda_ops()->name, name) == 0)
		return gp_cuda_ops();
#endif
	(void)name;
	return NULL;
}

/* In the order in which `auto` tries them. A device that this build lacks stays listed: its `ops` gives NULL. */
static const struct device_row {
	const char *name;
	const struct gp_device_ops *(*ops)(const char *name);
	bool automatic;      /* `auto` takes it */
	const char *missing; /* what a build needs to have it */
} devices[] = {
	{"cuda", cuda_ops, true, "build with GP_CUDA=on, or use cpu or auto"},
	{"cpu", cpu_ops, true, ""},
	{"cuda-emulated", cuda_ops, false, "it is for tests: build with GP_CUDA=emulated"},
};
#define DEVICES (sizeof devices / sizeof devices[0])

static enum gp_status open_row(const struct device_row *row, const char *arg, int threads, struct gp_device **out,
			       struct gp_err *err)
{
	struct gp_device *dev;
	GP_TRY(row->ops(row->name)->open(arg, threads, &dev, err));
	dev->speed = GP_SPEED_PRESUMED;
	if (!dev->name[0])
		snprintf(dev->name, sizeof dev->name, "%s", row->name);
	*out = dev;
	return GP_OK;
}

static enum gp_status open_auto(int threads, struct gp_device **out, struct gp_err *err)
{
	enum gp_status status = GP_DEVICE;
	char passed[GP_ERR_TEXT] = "";
	for (size_t i = 0; i < DEVICES; i++) {
		if (!devices[i].automatic || !devices[i].ops(devices[i].name))
			continue;
		status = open_row(&devices[i], NULL, threads, out, err);
		if (status == GP_OK) {
			memcpy((*out)->passed, passed, sizeof passed);
			return GP_OK;
		}
		snprintf(passed, sizeof passed, "%s", err->text);
	}
	return status;
}

/* Only a build that has it tells of it. */
static const char *emulated_name(void)
{
	return cuda_ops("cuda-emulated") ? ", cuda-emulated[:N]" : "";
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
		if (!devices[i].ops(devices[i].name))
			GP_FAIL(err, GP_DEVICE, "this build has no device \"%s\" (asked for \"%.32s\"): %s",
				devices[i].name, spec, devices[i].missing);
		const enum gp_status status =
			open_row(&devices[i], spec[len] ? spec + len + 1 : NULL, threads, out, err);
		return status == GP_USAGE ? gp_err_prefix(err, "device \"%.32s\"", spec) : status;
	}
	GP_FAIL(err, GP_USAGE, "unknown device \"%.32s\"; devices: auto, cpu, cuda[:N]%s", spec, emulated_name());
}
