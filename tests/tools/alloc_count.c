/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD library that counts calls of malloc and its relatives: those made
 * from inside oneDNN, the C++ library and the OpenMP runtime apart ("dnnl")
 * from all others ("ours"). It stands before the whole process, so it also
 * sees what common/base/mem.h cannot: libuv, jansson, the C library itself.
 * Not a profiler: sizes and frees are not looked at.
 *
 * At exit and on SIGUSR2 it writes to the file named by ALLOC_COUNT_FILE
 *     ours=N dnnl=M
 * and, at exit, one line per place that "ours" came from: COUNT OBJECT+OFFSET
 * (read it with addr2line -fe OBJECT OFFSET).
 *
 * The real functions are glibc's __libc_*, which need no dlsym: there is no
 * early phase to survive and nothing here allocates. Any thread may call.
 * Used by tests/e2e/steady_allocations.sh
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

enum { RANGE_MAX = 128, SITE_COUNT = 4096 };

/* An executable segment of a loaded object. */
struct range {
	uintptr_t start, end, base;
	const char *object;
	bool dnnl;
};

/* A place that allocates; `caller` 0 while free. */
struct site {
	atomic_uintptr_t caller;
	atomic_ulong calls;
};

/* Written once, before main; callers that come earlier count as "ours". */
static struct range ranges[RANGE_MAX];
static atomic_int range_count;
static struct site sites[SITE_COUNT];
static atomic_ulong ours, dnnl;
static const char *file_name;

static const struct range *find_range(uintptr_t address)
{
	int count = atomic_load_explicit(&range_count, memory_order_acquire);
	for (int i = 0; i < count; i++)
		if (address >= ranges[i].start && address < ranges[i].end)
			return &ranges[i];
	return NULL;
}

/* Open addressing; when the table is full the place is lost, not the count. */
static void count_site(uintptr_t caller)
{
	for (unsigned i = 0; i < SITE_COUNT; i++) {
		struct site *s = &sites[((caller >> 2) + i) % SITE_COUNT];
		uintptr_t seen = 0;
		if (atomic_compare_exchange_strong(&s->caller, &seen, caller) || seen == caller) {
			atomic_fetch_add_explicit(&s->calls, 1, memory_order_relaxed);
			return;
		}
	}
}

static void count_call(void *return_address)
{
	uintptr_t caller = (uintptr_t)return_address;
	const struct range *r = find_range(caller);
	if (r && r->dnnl) {
		atomic_fetch_add_explicit(&dnnl, 1, memory_order_relaxed);
		return;
	}
	atomic_fetch_add_explicit(&ours, 1, memory_order_relaxed);
	count_site(caller);
}

/* ---- the functions that are stood in for ---- */

void *malloc(size_t bytes)
{
	count_call(__builtin_return_address(0));
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	count_call(__builtin_return_address(0));
	return __libc_calloc(count, bytes);
}

void *realloc(void *p, size_t bytes)
{
	count_call(__builtin_return_address(0));
	return __libc_realloc(p, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
	count_call(__builtin_return_address(0));
	return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
	count_call(__builtin_return_address(0));
	return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes)
{
	count_call(__builtin_return_address(0));
	if (alignment < sizeof(void *) || (alignment & (alignment - 1)))
		return EINVAL;
	int saved = errno;
	void *p = __libc_memalign(alignment, bytes);
	errno = saved;
	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}

/* ---- report ---- */

static int open_report(void)
{
	return open(file_name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

static void write_line(int fd, const char *line, int length)
{
	if (length > 0 && write(fd, line, (size_t)length) != length)
		abort();
}

static void write_totals(int fd)
{
	char line[64];
	int n = snprintf(line, sizeof line, "ours=%lu dnnl=%lu\n", atomic_load(&ours), atomic_load(&dnnl));
	write_line(fd, line, n);
}

static void write_site(int fd, const struct site *s)
{
	char line[512];
	uintptr_t caller = atomic_load(&s->caller);
	const struct range *r = find_range(caller);
	int n = snprintf(line, sizeof line, "%lu %.400s+0x%lx\n", atomic_load(&s->calls), r ? r->object : "?",
			 (unsigned long)(caller - (r ? r->base : 0)));
	write_line(fd, line, n);
}

static void report_totals(int signum)
{
	(void)signum;
	int saved = errno, fd = open_report();
	if (fd >= 0) {
		write_totals(fd);
		close(fd);
	}
	errno = saved;
}

__attribute__((destructor)) static void report_all(void)
{
	int fd = file_name ? open_report() : -1;
	if (fd < 0)
		return;
	write_totals(fd);
	for (int i = 0; i < SITE_COUNT; i++)
		if (atomic_load(&sites[i].caller))
			write_site(fd, &sites[i]);
	close(fd);
}

/* ---- start ---- */

static bool is_dnnl(const char *object)
{
	static const char *const names[] = {"libdnnl", "libstdc++", "libgomp"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strstr(object, names[i]))
			return true;
	return false;
}

static int add_ranges(struct dl_phdr_info *info, size_t size, void *count)
{
	(void)size;
	int *n = count;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
		if (ph->p_type != PT_LOAD || !(ph->p_flags & PF_X) || *n == RANGE_MAX)
			continue;
		ranges[*n] = (struct range){.start = info->dlpi_addr + ph->p_vaddr, .base = info->dlpi_addr};
		ranges[*n].end = ranges[*n].start + ph->p_memsz;
		ranges[*n].object = *info->dlpi_name ? info->dlpi_name : program_invocation_name;
		ranges[*n].dnnl = is_dnnl(info->dlpi_name);
		(*n)++;
	}
	return 0;
}

__attribute__((constructor)) static void start(void)
{
	int count = 0;
	dl_iterate_phdr(add_ranges, &count);
	atomic_store_explicit(&range_count, count, memory_order_release);
	file_name = getenv("ALLOC_COUNT_FILE");
	struct sigaction action = {.sa_handler = report_totals, .sa_flags = SA_RESTART};
	if (file_name)
		sigaction(SIGUSR2, &action, NULL);
}
