/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLAS is opened when it is first asked for, and its absence is an error of
 * that call alone. Needs a build with the real CUDA device, but no card; says
 * so elsewhere. See kernels/cuda/runtime/cublas.h.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "kernels/cuda/runtime/blas.h"
#include "tests/unit/on_gpu.h"

#define TOOLKIT "/usr/local/cuda/lib64/libcublas.so"

/* What a child asks: a status, and a line in `err`. */
typedef enum gp_status question(void);

static enum gp_status ask_twice(void)
{
	const enum gp_status first = gp_blas_check(&err);
	return gp_blas_check(&err) == first ? first : GP_INTERNAL;
}

/* GP_OK, and why it is none, when `auto` comes to the CPU. */
static enum gp_status ask_auto(void)
{
	struct gp_device *dev;
	const enum gp_status status = gp_device_open("auto", 1, &dev, &err);
	if (status != GP_OK)
		return status;
	snprintf(err.text, sizeof err.text, "%s: %.200s", dev->name, dev->passed);
	dev->ops->close(dev);
	return GP_OK;
}

/* The answer is kept for the life of a process, so every question gets a process of its own. */
static enum gp_status ask(question *q, const char *library, char text[GP_ERR_TEXT])
{
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (library)
			setenv("GP_CUBLAS", library, 1);
		const enum gp_status status = q();
		const ssize_t told = write(ends[1], err.text, strlen(err.text));
		_exit(told >= 0 ? (int)status : 255);
	}
	close(ends[1]);
	const ssize_t n = read(ends[0], text, GP_ERR_TEXT - 1);
	text[n > 0 ? n : 0] = 0;
	close(ends[0]);
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return (enum gp_status)WEXITSTATUS(status);
}

static void library_that_is_not_there_is_named_at_every_call(void **state)
{
	(void)state;
	char text[GP_ERR_TEXT];
	assert_int_equal(ask(ask_twice, "/nowhere/libcublas.so", text), GP_DEVICE);
	assert_non_null(strstr(text, "/nowhere/libcublas.so"));
	assert_non_null(strstr(text, "LD_LIBRARY_PATH"));
}

static void library_without_the_functions_is_refused(void **state)
{
	(void)state;
	char text[GP_ERR_TEXT];
	assert_int_equal(ask(ask_twice, "libm.so.6", text), GP_DEVICE);
	assert_non_null(strstr(text, "cublasCreate"));
}

/* Without a word about where. */
static void library_of_the_toolkit_is_found(void **state)
{
	(void)state;
	char text[GP_ERR_TEXT];
	if (access(TOOLKIT, R_OK) != 0)
		skip();
	assert_int_equal(ask(ask_twice, NULL, text), GP_OK);
}

static void device_auto_says_why_it_is_the_cpu(void **state)
{
	(void)state;
	char text[GP_ERR_TEXT];
	assert_int_equal(ask(ask_auto, "/nowhere/libcublas.so", text), GP_OK);
	assert_true(strncmp(text, "cpu: ", 5) == 0);
	assert_true(strstr(text, "/nowhere/libcublas.so") || strstr(text, "no GPU can be used"));
}

static void program_has_not_loaded_the_library_by_starting(void **state)
{
	(void)state;
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "r");
	assert_non_null(maps);
	while (fgets(line, sizeof line, maps))
		assert_null(strstr(line, "libcublas"));
	fclose(maps);
}

int main(void)
{
	if (gp_rt_is_emulated())
		return skip_all("emulated devices need no cuBLAS");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(library_that_is_not_there_is_named_at_every_call),
		cmocka_unit_test(library_without_the_functions_is_refused),
		cmocka_unit_test(library_of_the_toolkit_is_found),
		cmocka_unit_test(device_auto_says_why_it_is_the_cpu),
		cmocka_unit_test(program_has_not_loaded_the_library_by_starting),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
