/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of all blocks, those in use and those that wait. See pinned_pool.h. There are some for each session, so that
 * to walk it takes no time beside what it saves.
 */
#include "kernels/cuda/runtime/pinned_pool.h"

#include <pthread.h>
#include <stddef.h>

#include "common/base/mem.h"

#define PAGE       ((uint64_t)4096)
#define STEPS      8 /* sizes between one power of two and the next */
#define MOST_BYTES ((uint64_t)1 << 62)

struct block {
	struct block *next;
	void *at;
	uint64_t size;
	int device;
	bool waits;
	uint64_t since_ns; /* of one that waits */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static uint64_t kept, used;

uint64_t gp_pinned_bytes(uint64_t bytes)
{
	uint64_t step = PAGE;
	if (bytes > MOST_BYTES)
		return bytes;
	while (step * STEPS * 2 < bytes)
		step *= 2;
	const uint64_t size = (bytes + step - 1) / step * step;
	return size ? size : PAGE;
}

/* Forgets the block; returns where it lies. */
static void *forget(struct block **link)
{
	struct block *b = *link;
	void *at = b->at;
	*link = b->next;
	if (b->waits)
		kept -= b->size;
	else
		used -= b->size;
	gp_free(b);
	return at;
}

void *gp_pinned_take(int device, uint64_t size)
{
	struct block *found = NULL;
	pthread_mutex_lock(&lock);
	for (struct block *b = blocks; b; b = b->next) /* the one that came last: its memory may be in a cache */
		if (b->waits && b->device == device && b->size == size && (!found || b->since_ns > found->since_ns))
			found = b;
	if (found) {
		found->waits = false;
		kept -= size;
		used += size;
	}
	void *at = found ? found->at : NULL;
	pthread_mutex_unlock(&lock);
	return at;
}

bool gp_pinned_add(int device, void *at, uint64_t size)
{
	struct block *b = gp_calloc(1, sizeof *b);
	if (!b)
		return false;
	*b = (struct block){.at = at, .size = size, .device = device};
	pthread_mutex_lock(&lock);
	b->next = blocks;
	blocks = b;
	used += size;
	pthread_mutex_unlock(&lock);
	return true;
}

static struct block **find(const void *at)
{
	struct block **link = &blocks;
	while (*link && (*link)->at != at)
		link = &(*link)->next;
	return link;
}

bool gp_pinned_keep(void *at, uint64_t now_ns)
{
	pthread_mutex_lock(&lock);
	struct block **link = find(at), *b = *link;
	const bool keeps = b && b->size <= GP_PINNED_KEPT_BYTES;
	if (keeps) {
		b->waits = true;
		b->since_ns = now_ns;
		used -= b->size;
		kept += b->size;
	} else if (b)
		(void)forget(link);
	pthread_mutex_unlock(&lock);
	return keeps;
}

/* The one that has waited longest; NULL: none does. */
static struct block **oldest(int device)
{
	struct block **found = NULL;
	for (struct block **link = &blocks; *link; link = &(*link)->next) {
		const struct block *b = *link;
		if (b->waits && (device < 0 || b->device == device) && (!found || b->since_ns <= (*found)->since_ns))
			found = link;
	}
	return found;
}

void *gp_pinned_old(int device, uint64_t now_ns)
{
	void *at = NULL;
	pthread_mutex_lock(&lock);
	struct block **link = oldest(device);
	if (link && (kept > GP_PINNED_KEPT_BYTES || now_ns - (*link)->since_ns > GP_PINNED_KEPT_NS))
		at = forget(link);
	pthread_mutex_unlock(&lock);
	return at;
}

void *gp_pinned_any(int device)
{
	pthread_mutex_lock(&lock);
	struct block **link = oldest(device);
	void *at = link ? forget(link) : NULL;
	pthread_mutex_unlock(&lock);
	return at;
}

void gp_pinned_usage(uint64_t *in_use, uint64_t *waiting)
{
	pthread_mutex_lock(&lock);
	*in_use = used;
	*waiting = kept;
	pthread_mutex_unlock(&lock);
}
