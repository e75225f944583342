/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any file is taken as one of --limits or refused with a message of one
 * line that names the file; who asks has limits in the ranges that the file may set
 * (server/limits.h).
 */
#include <string.h>

#include "server/limits.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct gp_limits base = {GP_LIMITS_ANY, GP_LIMITS_ANY, GP_LIMITS_ANY, 4096,
				      250,           GP_LIMITS_ANY, GP_LIMITS_ANY, 0.0};

static void check_message(const struct gp_err *err, const char *path)
{
	gp_require(err->code == GP_INVALID && !strchr(err->text, '\n'));
	gp_require(strncmp(err->text, path, strlen(path)) == 0);
}

static bool is_within(uint64_t value, uint64_t most)
{
	return value == GP_LIMITS_ANY || value <= most;
}

static void check_limits(const struct gp_limits *l)
{
	gp_require(is_within(l->sessions, 100000) && is_within(l->runs, 1000));
	gp_require(is_within(l->memory_bytes, UINT64_C(1) << 50) && is_within(l->device_bytes, UINT64_C(1) << 50));
	gp_require(is_within(l->checkpoint_bytes, UINT64_C(1) << 50));
	gp_require(l->links > 0 && is_within(l->links, 1000000) && is_within(l->measures, 1000000));
	gp_require(l->device_share == 0.0 || (l->device_share >= 0.01 && l->device_share <= 1000));
}

static void check_name(void *arg, const char *name, const struct gp_limits *l)
{
	check_limits(l);
	gp_require(gp_limits_find(arg, name) == l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const who[] = {"", "token:edge-1", "cert:dns:aaaaaaaaaaaaaaaaaaaaaaab",
					  "cert:uri:a,token:b"};
	char path[32];
	struct gp_limits_table *t = NULL;
	struct gp_err err;
	int line;
	const int fd = memory_file(data, size, path);
	if (gp_limits_load(path, &base, &t, &err) != GP_OK) {
		check_message(&err, path);
	} else {
		for (size_t i = 0; i < sizeof who / sizeof who[0]; i++)
			check_limits(gp_limits_find(t, who[i]));
		gp_limits_each_name(t, check_name, t);
		gp_limits_misfit(t, size & 1, size & 2, &line);
	}
	gp_limits_free(t);
	close(fd);
	return 0;
}
