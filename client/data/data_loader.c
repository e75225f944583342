/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader: one thread fills preallocated batches ahead of the consumer.
 *
 *   free slots --> thread fills one --> ready queue --> next() --> give_back() --> free slots
 *
 * Order is gp_rng_permutation(seed, stream(SHUFFLE, epoch)), so any batch of any
 * epoch can be made without its predecessors, and seek needs no replay. With
 * bucket= samples of about one length are put together then (data_bucket.h). A seek
 * starts a new generation: what the thread was at is dropped when it notices,
 * which is before the next sample.
 *
 * Test: tests/unit/test_data_loader.c
 */
#include "client/data/data_internal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "client/data/data_bucket.h"
#include "common/base/rng.h"

enum { PREFETCH_MAX = 1024 };
#define LOADER_BYTES_MAX ((uint64_t)16 << 30)

struct slot {
	struct gp_batch batch; /* first: the consumer's pointer is the slot's */
	bool taken;
};

struct gp_loader {
	const struct gp_dataset *d;
	struct gp_loader_spec spec;
	uint32_t batches; /* per epoch */
	size_t sample_bytes[GP_DATA_TENSORS], label_bytes;
	int slots; /* prefetch + the one in the consumer's hands */
	struct slot *slot;
	uint8_t *memory; /* of all batches */

	/* Used by the loader's thread only. */
	pthread_t thread;
	bool started;
	uint32_t *order;
	uint64_t *bucket_room; /* where samples are ordered by length; else NULL */
	uint32_t order_epoch;
	bool order_valid;
	struct gp_data_scratch scratch;

	atomic_uint generation; /* written under the lock; read anywhere to stop early */
	atomic_bool stop;

	pthread_mutex_t lock; /* everything below */
	pthread_cond_t work, ready;
	uint32_t next_epoch, next_index;       /* what the thread makes next */
	struct slot **free_slot, **ready_slot; /* a stack and a ring of `slots` */
	int free_count, ready_count, ready_head;
	bool failed;
	struct gp_err err;
};

static bool outdated(struct gp_loader *l, unsigned generation)
{
	return atomic_load_explicit(&l->stop, memory_order_relaxed) ||
	       atomic_load_explicit(&l->generation, memory_order_relaxed) != generation;
}

static uint32_t length_of(const void *arg, uint32_t sample)
{
	const struct gp_dataset *d = arg;
	return d->class->length(d, gp_dataset_source(d, sample));
}

static void shuffle(struct gp_loader *l, uint32_t epoch)
{
	const struct gp_dataset *d = l->d;
	gp_rng_permutation(l->spec.seed, gp_rng_stream(GP_RNG_SHUFFLE, epoch), l->order, d->samples);
	if (l->bucket_room) {
		const struct gp_bucket b = {d->bucket, (uint32_t)l->spec.batch, l->spec.seed, length_of,
					    d,         l->bucket_room};
		gp_bucket_order(&b, epoch, l->order, d->samples);
	}
}

static void prepare_order(struct gp_loader *l, uint32_t epoch)
{
	if (l->order_valid && (l->order_epoch == epoch || !l->spec.shuffle))
		return;
	uint32_t n = l->d->samples;
	if (l->spec.shuffle)
		shuffle(l, epoch);
	else
		for (uint32_t i = 0; i < n; i++)
			l->order[i] = i;
	l->order_epoch = epoch;
	l->order_valid = true;
}

static enum gp_status load_sample(struct gp_loader *l, struct gp_batch *b, int i, struct gp_err *err)
{
	const struct gp_draw draw = {l->spec.seed, b->epoch, b->samples[i]};
	void *tensor[GP_DATA_TENSORS];
	for (int k = 0; k < b->tensors; k++)
		tensor[k] = (uint8_t *)b->data[k] + (size_t)i * l->sample_bytes[k];
	uint8_t *const label = (uint8_t *)b->label + (size_t)i * l->label_bytes;
	const enum gp_status status = gp_dataset_load(l->d, &draw, &l->scratch, tensor, label, err);
	if (!l->spec.on_bad || (status != GP_INVALID && status != GP_IO))
		return status;
	l->spec.on_bad(l->spec.on_bad_arg, b->samples[i], err);
	for (int k = 0; k < b->tensors; k++)
		memset(tensor[k], 0, l->sample_bytes[k]);
	memset(label, 0, l->label_bytes);
	return GP_OK;
}

static void clear_missing(const struct gp_loader *l, struct gp_batch *b)
{
	const size_t valid = (size_t)b->valid, missing = (size_t)l->spec.batch - valid;
	for (int k = 0; k < b->tensors; k++)
		memset((uint8_t *)b->data[k] + valid * l->sample_bytes[k], 0, missing * l->sample_bytes[k]);
	memset((uint8_t *)b->label + valid * l->label_bytes, 0, missing * l->label_bytes);
	memset(b->samples + valid, 0, missing * sizeof *b->samples);
}

/* False when it gave up because of a seek or free; *status tells about everything else. */
static bool fill_batch(struct gp_loader *l, struct gp_batch *b, unsigned generation, enum gp_status *status,
		       struct gp_err *err)
{
	prepare_order(l, b->epoch);
	uint32_t first = b->index * (uint32_t)l->spec.batch, left = l->d->samples - first;
	b->valid = left < (uint32_t)l->spec.batch ? (int)left : l->spec.batch;
	for (int i = 0; i < b->valid; i++) {
		if (outdated(l, generation))
			return false;
		b->samples[i] = l->order[first + (uint32_t)i];
		*status = load_sample(l, b, i, err);
		if (*status != GP_OK)
			return true;
	}
	clear_missing(l, b);
	return true;
}

/* Takes a free slot and numbers it. NULL: stop. Called with the lock held. */
static struct slot *wait_for_slot(struct gp_loader *l)
{
	while (!atomic_load(&l->stop) && (l->failed || l->free_count == 0))
		pthread_cond_wait(&l->work, &l->lock);
	if (atomic_load(&l->stop))
		return NULL;
	struct slot *s = l->free_slot[--l->free_count];
	s->batch.epoch = l->next_epoch;
	s->batch.index = l->next_index;
	if (++l->next_index == l->batches) {
		l->next_index = 0;
		l->next_epoch++;
	}
	return s;
}

/* Called with the lock held. */
static void finish_slot(struct gp_loader *l, struct slot *s, bool keep, enum gp_status status, const struct gp_err *err)
{
	if (!keep || status != GP_OK) {
		l->free_slot[l->free_count++] = s;
		if (keep) {
			l->failed = true;
			l->err = *err;
		}
	} else {
		l->ready_slot[(l->ready_head + l->ready_count++) % l->slots] = s;
	}
	pthread_cond_signal(&l->ready);
}

static void *loader_thread(void *arg)
{
	struct gp_loader *l = arg;
	struct slot *s;
	struct gp_err err;
	pthread_mutex_lock(&l->lock);
	while ((s = wait_for_slot(l))) {
		unsigned generation = atomic_load(&l->generation);
		enum gp_status status = GP_OK;
		pthread_mutex_unlock(&l->lock);
		bool done = fill_batch(l, &s->batch, generation, &status, &err);
		pthread_mutex_lock(&l->lock);
		finish_slot(l, s, done && !outdated(l, generation), status, &err);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

static enum gp_status check_spec(const struct gp_dataset *d, const struct gp_loader_spec *spec, struct gp_err *err)
{
	gp_require(spec->batch >= 1 && spec->prefetch >= 1);
	if (d->samples == 0)
		GP_FAIL(err, GP_INVALID, "dataset %s has no samples of its own", d->class->info.name);
	if (spec->drop_last && d->samples < (uint32_t)spec->batch)
		GP_FAIL(err, GP_INVALID,
			"dataset %s has %u samples, fewer than one batch of %d; choose a smaller batch",
			d->class->info.name, d->samples, spec->batch);
	uint64_t bytes = 0;
	for (int k = 0; k < d->tensors; k++)
		bytes += gp_tensor_bytes(&d->tensor[k]);
	if (spec->prefetch > PREFETCH_MAX || !gp_mul_ok(bytes, (uint64_t)spec->batch, &bytes) ||
	    !gp_mul_ok(bytes, (uint64_t)spec->prefetch + 1, &bytes) || bytes > LOADER_BYTES_MAX)
		GP_FAIL(err, GP_INVALID,
			"%d batches of %d samples ahead take more than %llu bytes; choose a smaller batch",
			spec->prefetch, spec->batch, (unsigned long long)LOADER_BYTES_MAX);
	return GP_OK;
}

/* Takes `bytes` of the memory from *at on, which begins at a multiple of 64; NULL while it is only measured. */
static void *take(uint8_t *memory, size_t *at, size_t bytes)
{
	void *room = memory ? memory + *at : NULL;
	*at += (bytes + 63) / 64 * 64;
	return room;
}

static struct gp_tensor_info label_info(const struct gp_dataset *d)
{
	struct gp_tensor_info info = {.name = "label", .type = {.dtype = d->values ? GP_F32 : GP_I32}};
	if (d->labels > 0)
		info.type.shape = (struct gp_shape){.ndim = 1, .dim = {d->labels}};
	return info;
}

/* Lays the batch out from *at on. */
static void place(const struct gp_loader *l, size_t *at, struct gp_batch *b)
{
	const struct gp_tensor_info label = label_info(l->d);
	const size_t batch = (size_t)l->spec.batch;
	b->tensors = l->d->tensors;
	b->room = l->spec.batch;
	b->info = l->d->tensor;
	for (int k = 0; k < b->tensors; k++)
		b->data[k] = take(l->memory, at, batch * l->sample_bytes[k]);
	b->label_info = label;
	b->label = take(l->memory, at, batch * gp_tensor_bytes(&label));
	b->samples = take(l->memory, at, batch * sizeof *b->samples);
}

static enum gp_status allocate(struct gp_loader *l, struct gp_err *err)
{
	const size_t slots = (size_t)l->slots;
	struct gp_batch measured;
	size_t bytes = 0, at = 0;
	place(l, &bytes, &measured);
	l->slot = gp_calloc(slots, sizeof *l->slot);
	l->free_slot = gp_calloc(slots, sizeof(void *));
	l->ready_slot = gp_calloc(slots, sizeof(void *));
	l->order = gp_calloc(l->d->samples, sizeof *l->order);
	l->memory = gp_alloc_aligned(slots * bytes);
	const bool buckets = l->spec.shuffle && l->d->bucket > 1 && l->d->class->length;
	if (buckets)
		l->bucket_room = gp_calloc(2 * (size_t)l->d->samples, sizeof *l->bucket_room);
	if ((buckets && !l->bucket_room) || !l->slot || !l->free_slot || !l->ready_slot || !l->order || !l->memory)
		GP_FAIL(err, GP_NOMEM, "out of memory for %zu batches of %d samples", slots, l->spec.batch);
	for (size_t i = 0; i < slots; i++) {
		place(l, &at, &l->slot[i].batch);
		l->free_slot[l->free_count++] = &l->slot[i];
	}
	return GP_OK;
}

static enum gp_status start(struct gp_loader *l, struct gp_err *err)
{
	int code = pthread_create(&l->thread, NULL, loader_thread, l);
	if (code)
		return gp_err_set(err, GP_IO, code, __FILE__, __LINE__, "cannot start the loader thread: %s",
				  strerror(code));
	l->started = true;
	pthread_setname_np(l->thread, "gp-loader");
	return GP_OK;
}

enum gp_status gp_loader_new(struct gp_dataset *d, const struct gp_loader_spec *spec, struct gp_loader **out,
			     struct gp_err *err)
{
	GP_TRY(check_spec(d, spec, err));
	struct gp_loader *l = gp_calloc(1, sizeof *l);
	if (!l)
		GP_FAIL(err, GP_NOMEM, "out of memory for a loader");
	l->d = d;
	l->spec = *spec;
	l->slots = spec->prefetch + 1;
	for (int k = 0; k < d->tensors; k++)
		l->sample_bytes[k] = gp_tensor_bytes(&d->tensor[k]);
	const struct gp_tensor_info label = label_info(d);
	l->label_bytes = gp_tensor_bytes(&label);
	uint32_t batch = (uint32_t)spec->batch;
	l->batches = spec->drop_last ? d->samples / batch : (d->samples - 1) / batch + 1;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->work, NULL);
	pthread_cond_init(&l->ready, NULL);
	enum gp_status status = allocate(l, err);
	if (status == GP_OK)
		status = start(l, err);
	if (status != GP_OK) {
		gp_loader_free(l);
		return status;
	}
	*out = l;
	return GP_OK;
}

void gp_loader_free(struct gp_loader *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	atomic_store(&l->stop, true);
	pthread_cond_broadcast(&l->work);
	pthread_mutex_unlock(&l->lock);
	if (l->started)
		pthread_join(l->thread, NULL);
	pthread_cond_destroy(&l->ready);
	pthread_cond_destroy(&l->work);
	pthread_mutex_destroy(&l->lock);
	gp_data_scratch_deinit(&l->scratch);
	gp_free_aligned(l->memory);
	gp_free(l->order);
	gp_free(l->bucket_room);
	gp_free(l->ready_slot);
	gp_free(l->free_slot);
	gp_free(l->slot);
	gp_free(l);
}

uint32_t gp_loader_batches_per_epoch(const struct gp_loader *l)
{
	return l->batches;
}

enum gp_status gp_loader_seek(struct gp_loader *l, uint32_t epoch, uint32_t index, struct gp_err *err)
{
	if (index >= l->batches)
		GP_FAIL(err, GP_INVALID, "batch %u of epoch %u is wanted, but an epoch has %u batches", index, epoch,
			l->batches);
	pthread_mutex_lock(&l->lock);
	atomic_fetch_add(&l->generation, 1);
	for (; l->ready_count > 0; l->ready_count--) {
		l->free_slot[l->free_count++] = l->ready_slot[l->ready_head];
		l->ready_head = (l->ready_head + 1) % l->slots;
	}
	l->next_epoch = epoch;
	l->next_index = index;
	l->failed = false;
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->lock);
	return GP_OK;
}

enum gp_status gp_loader_next(struct gp_loader *l, struct gp_batch **out, struct gp_err *err)
{
	enum gp_status status = GP_OK;
	pthread_mutex_lock(&l->lock);
	while (l->ready_count == 0 && !l->failed) {
		int taken = 0;
		for (int i = 0; i < l->slots; i++)
			taken += l->slot[i].taken;
		gp_require(taken < l->slots); /* every batch is in the caller's hands: it would wait for itself */
		pthread_cond_wait(&l->ready, &l->lock);
	}
	if (l->ready_count > 0) {
		struct slot *s = l->ready_slot[l->ready_head];
		l->ready_head = (l->ready_head + 1) % l->slots;
		l->ready_count--;
		s->taken = true;
		*out = &s->batch;
	} else {
		*err = l->err;
		status = err->code;
	}
	pthread_mutex_unlock(&l->lock);
	return status;
}

void gp_loader_give_back(struct gp_loader *l, struct gp_batch *b)
{
	struct slot *s = (struct slot *)b;
	pthread_mutex_lock(&l->lock);
	gp_require(s >= l->slot && s < l->slot + l->slots && s->taken);
	s->taken = false;
	l->free_slot[l->free_count++] = s;
	pthread_cond_signal(&l->work);
	pthread_mutex_unlock(&l->lock);
}
