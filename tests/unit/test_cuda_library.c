/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLAS is opened when it is first asked for, and its absence is an error of
 * that call alone. Needs a build with the real CUDA device, but no card; says
 * so elsewhere. See kernels/cuda/cublas.h.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/blas.h"
#include "tests/unit/on_gpu.h"

/* The answer is kept for the life of a process, so every question gets a process of its own. */
static enum gp_status check_in_child(const char *library, char text[GP_ERR_TEXT])
{
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		setenv("GP_CUBLAS", library, 1);
		const enum gp_status first = gp_blas_check(&err);
		const enum gp_status second = gp_blas_check(&err);
		const ssize_t told = write(ends[1], err.text, strlen(err.text));
		_exit(first == second && told >= 0 ? (int)first : 255);
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
	assert_int_equal(check_in_child("/nowhere/libcublas.so", text), GP_DEVICE);
	assert_non_null(strstr(text, "/nowhere/libcublas.so"));
	assert_non_null(strstr(text, "LD_LIBRARY_PATH"));
}

static void library_without_the_functions_is_refused(void **state)
{
	(void)state;
	char text[GP_ERR_TEXT];
	assert_int_equal(check_in_child("libm.so.6", text), GP_DEVICE);
	assert_non_null(strstr(text, "cublasCreate"));
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
		cmocka_unit_test(program_has_not_loaded_the_library_by_starting),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
