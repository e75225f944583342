/* SPDX-License-Identifier: Apache-2.0
 *
 * See emulated_checks.h. Test: tests/unit/test_emulator.cc
 */
#include "kernels/cuda/emulator/emulated_checks.h"

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace
{

struct room {
	uintptr_t end;
	int device;
};

std::mutex lock;
thread_local int captures;
bool one_memory;

/* By their first byte. Never freed: devices may be used until the last destructor. */
std::map<uintptr_t, room> &rooms()
{
	static auto *const all = new std::map<uintptr_t, room>;
	return *all;
}

/* The allocation that begins last at or before `at`; NULL when that ends before it. */
const room *room_of(uintptr_t at)
{
	auto next = rooms().upper_bound(at);
	if (next == rooms().begin())
		return nullptr;
	const room &r = (--next)->second;
	return at <= r.end ? &r : nullptr;
}

const char *kind(const room *r)
{
	return !r ? "no memory of a GPU" : r->device == GPK_PINNED ? "the host's memory" : "another GPU's memory";
}

} // namespace

void gpk_refuse(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fputs("emulated GPU: ", stderr);
	vfprintf(stderr, format, args);
	fputs("\n", stderr);
	va_end(args);
	abort();
}

void gpk_memory_born(int device, const void *p, size_t bytes)
{
	const std::lock_guard<std::mutex> hold(lock);
	rooms()[(uintptr_t)p] = {(uintptr_t)p + bytes, device};
}

void gpk_memory_dead(int device, const void *p)
{
	const std::lock_guard<std::mutex> hold(lock);
	const auto at = rooms().find((uintptr_t)p);
	if (at == rooms().end())
		gpk_refuse("%p is freed, which is not allocated", p);
	if (at->second.device != device)
		gpk_refuse("%p is freed as if it were another kind of memory, or of another GPU", p);
	rooms().erase(at);
}

void gpk_require_device(int device, const void *p, size_t bytes, const char *what, const char *who)
{
	const std::lock_guard<std::mutex> hold(lock);
	const room *const r = room_of((uintptr_t)p);
	if (!r && one_memory)
		return;
	if (!r || r->device != device)
		gpk_refuse("%s: %s %p is %s, it has to be GPU %d's", who, what, p, kind(r), device);
	if (bytes > r->end - (uintptr_t)p)
		gpk_refuse("%s: %s %p is %zu bytes before its allocation's end, %zu are wanted", who, what, p,
			   (size_t)(r->end - (uintptr_t)p), bytes);
}

void gpk_require_host(const void *p, size_t bytes, bool captured, const char *who)
{
	const std::lock_guard<std::mutex> hold(lock);
	const auto next = rooms().lower_bound((uintptr_t)p + bytes);
	const room *const last = next == rooms().begin() ? nullptr : &std::prev(next)->second;
	const bool meets = last && (uintptr_t)p < last->end;
	if (meets && last->device != GPK_PINNED)
		gpk_refuse("%s: %p is memory of GPU %d, it has to be the host's", who, p, last->device);
	if (captured && !(meets && (uintptr_t)p >= std::prev(next)->first && (uintptr_t)p + bytes <= last->end))
		gpk_refuse("%s: %p is not pinned: a captured copy would read it whenever it likes", who, p);
}

void gpk_memory_is_one(void)
{
	const std::lock_guard<std::mutex> hold(lock);
	one_memory = true;
}

void gpk_capture_begins(void)
{
	captures++;
}

void gpk_capture_ends(void)
{
	captures--;
}

void gpk_require_no_capture(const char *who)
{
	if (captures > 0)
		gpk_refuse("%s: not while this thread captures a graph", who);
}
