/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens cuBLAS. See cublas.h. Test: tests/unit/test_cuda_library.c
 */
#include "kernels/cuda/runtime/cublas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define QUOTED_(text) #text
#define QUOTED(text)  QUOTED_(text)
#define LIBRARY       "libcublas.so." QUOTED(CUBLAS_VER_MAJOR)

/* Its own first. What is called of it has been the same since version 12. */
static const char *const names[] = {LIBRARY, "libcublas.so.12"};

namespace
{

struct library {
	struct gp_cublas calls;
	bool loaded;
	char why[256]; /* not loaded: the first attempt's words */
};

void note(struct library *l)
{
	const char *const words = dlerror();
	if (!l->why[0] && words)
		snprintf(l->why, sizeof l->why, "%s", words);
}

/* In `folder`, or, when that is "", where the loader looks: the program's rpath, LD_LIBRARY_PATH, ld.so.conf. */
void *open_in(const char *folder, const char *below, const char *name, struct library *l)
{
	char path[4096];
	if (!folder)
		return NULL;
	snprintf(path, sizeof path, "%s%s%s", folder, below, name);
	void *const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		note(l);
	return handle;
}

void *open_library(struct library *l)
{
	const char *const named = getenv("GP_CUBLAS");
	void *handle = NULL;
	if (named) {
		handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
		if (!handle)
			note(l);
		return handle;
	}
	for (const char *name : names) {
		const char *const folders[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
		handle = open_in("", "", name, l);
		for (size_t i = 0; !handle && i < sizeof folders / sizeof folders[0]; i++)
			handle = open_in(folders[i], "/lib64/", name, l);
		if (handle)
			break;
	}
	return handle;
}

bool find_calls(void *handle, struct library *l)
{
#define X(name)                                                                                                        \
	if (!(l->calls.name##_p = reinterpret_cast<decltype(&name)>(dlsym(handle, #name)))) {                          \
		note(l);                                                                                               \
		return false;                                                                                          \
	}
	GP_CUBLAS_CALLS(X)
#undef X
	return true;
}

/* Never closed: handles of sessions come and go, and a GPU's state in the library is not to be made twice. */
struct library opened(void)
{
	struct library l = {};
	void *const handle = open_library(&l);
	if (!handle)
		return l;
	l.loaded = find_calls(handle, &l);
	if (!l.loaded)
		dlclose(handle);
	return l;
}

} // namespace

enum gp_status gp_cublas_load(const struct gp_cublas **out, struct gp_err *err)
{
	static const struct library l = opened();
	if (!l.loaded)
		GP_FAIL(err, GP_DEVICE,
			"cuBLAS cannot be loaded: %s; the CUDA device needs " LIBRARY
			" (with libcublasLt) of the CUDA toolkit in LD_LIBRARY_PATH",
			l.why);
	*out = &l.calls;
	return GP_OK;
}
