/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at the files of a dataset with several threads. See data_check.h; what
 * a whole picture looks like from outside: data_look.c.
 * Test: tests/unit/test_data_check.c
 */
#include "client/data/data_check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/data/data_internal.h"

enum { THREADS_MAX = 256 };
#define PROGRESS_NS 200000000

struct check {
	const struct gp_dataset *d;
	const struct gp_check_options *options;
	struct gp_bad_samples *out;
	pthread_mutex_t lock; /* everything below, and *out */
	pthread_cond_t ended;
	uint32_t next, done;
	int running;
	enum gp_status status; /* of what ends the check: memory */
	struct gp_err err;
};

void gp_bad_samples_deinit(struct gp_bad_samples *b)
{
	for (uint32_t i = 0; i < b->count; i++) {
		gp_free(b->list[i].file);
		gp_free(b->list[i].text);
	}
	gp_free(b->list);
	*b = (struct gp_bad_samples){0};
}

enum gp_status gp_bad_samples_add(struct gp_bad_samples *b, uint32_t sample, const char *file, const char *text,
				  struct gp_err *err)
{
	struct gp_bad_sample *grown = gp_realloc(b->list, (size_t)b->count + 1, sizeof *grown);
	if (grown)
		b->list = grown;
	struct gp_bad_sample bad = {sample, gp_strdup(file), gp_strdup(text)};
	if (!grown || !bad.file || !bad.text) {
		gp_free(bad.file);
		gp_free(bad.text);
		GP_FAIL(err, GP_NOMEM, "out of memory for a list of %u files", b->count + 1);
	}
	b->list[b->count++] = bad;
	return GP_OK;
}

/* A file is bad (GP_INVALID, GP_IO) or this machine is (memory): the second ends the check. */
static bool is_of_the_file(enum gp_status status)
{
	return status == GP_INVALID || status == GP_IO;
}

static enum gp_status check_sample(const struct check *c, uint32_t sample, struct gp_data_scratch *scratch,
				   char path[GP_PICTURE_PATH], struct gp_err *err)
{
	struct gp_image image;
	c->d->class->path(c->d, gp_dataset_source(c->d, sample), path);
	if (c->options->depth == GP_CHECK_HEADERS && gp_picture_looks_whole(path))
		return GP_OK;
	return gp_picture_read(path, scratch, &image, err);
}

/* Called with the lock held. */
static void note(struct check *c, uint32_t sample, const char *path, enum gp_status status, const struct gp_err *err)
{
	struct gp_err failed = *err;
	if (status != GP_OK && is_of_the_file(status))
		status = gp_bad_samples_add(c->out, sample, path, err->text, &failed);
	if (status != GP_OK && c->status == GP_OK) {
		c->status = status;
		c->err = failed;
	}
	c->done++;
}

static bool is_over(const struct check *c)
{
	return c->next == c->d->samples || c->status != GP_OK;
}

static void *check_thread(void *arg)
{
	struct check *c = arg;
	struct gp_data_scratch scratch = {0};
	struct gp_err err = {0};
	char path[GP_PICTURE_PATH];
	pthread_mutex_lock(&c->lock);
	while (!is_over(c)) {
		const uint32_t sample = c->next++;
		pthread_mutex_unlock(&c->lock);
		const enum gp_status status = check_sample(c, sample, &scratch, path, &err);
		pthread_mutex_lock(&c->lock);
		note(c, sample, path, status, &err);
	}
	c->running--;
	pthread_cond_signal(&c->ended);
	pthread_mutex_unlock(&c->lock);
	gp_data_scratch_deinit(&scratch);
	return NULL;
}

/* Until all threads have ended; called with the lock held. */
static void watch(struct check *c)
{
	while (c->running > 0) {
		struct timespec until;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += PROGRESS_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&c->ended, &c->lock, &until);
		if (c->options->progress)
			c->options->progress(c->options->arg, c->done, c->d->samples);
	}
}

/* One thread at least; where the machine gives no more, fewer than asked do it. */
static enum gp_status run_threads(struct check *c, struct gp_err *err)
{
	pthread_t thread[THREADS_MAX];
	const int most = c->options->threads < THREADS_MAX ? c->options->threads : THREADS_MAX;
	int started = 0, code = 0;
	pthread_mutex_lock(&c->lock);
	for (; started < most && (uint32_t)started < c->d->samples; started++, c->running++) {
		code = pthread_create(&thread[started], NULL, check_thread, c);
		if (code)
			break;
	}
	watch(c);
	pthread_mutex_unlock(&c->lock);
	for (int i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	if (started == 0 && code)
		GP_FAIL(err, GP_IO, "cannot start a thread: %s", strerror(code));
	return GP_OK;
}

static int compare_samples(const void *a, const void *b)
{
	const uint32_t x = ((const struct gp_bad_sample *)a)->sample, y = ((const struct gp_bad_sample *)b)->sample;
	return (x > y) - (x < y);
}

enum gp_status gp_data_check(const struct gp_dataset *d, const struct gp_check_options *options,
			     struct gp_bad_samples *out, struct gp_err *err)
{
	struct check c = {.d = d, .options = options, .out = out};
	const uint32_t before = out->count;
	gp_require(options->threads >= 1);
	if (!d->class->path || d->samples == 0)
		return GP_OK;
	pthread_mutex_init(&c.lock, NULL);
	pthread_cond_init(&c.ended, NULL);
	const enum gp_status status = run_threads(&c, err);
	pthread_cond_destroy(&c.ended);
	pthread_mutex_destroy(&c.lock);
	GP_TRY(status);
	if (c.status != GP_OK) {
		*err = c.err;
		return c.status;
	}
	if (out->count > before)
		qsort(out->list + before, out->count - before, sizeof *out->list, compare_samples);
	out->checked += c.done;
	return GP_OK;
}

bool gp_dataset_has_files(const struct gp_dataset *d)
{
	return d->class->path != NULL;
}

static enum gp_status check_each(const struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				 struct gp_bad_samples *out, struct gp_err *err)
{
	char path[GP_PICTURE_PATH];
	enum gp_status status = GP_OK;
	for (int i = 0; d->class->check_file && status == GP_OK; i++) {
		struct gp_err why = {0};
		path[0] = '\0';
		const enum gp_status found = d->class->check_file(spec, split, i, path, &why);
		if (!path[0])
			break;
		out->checked++;
		if (is_of_the_file(found)) {
			status = gp_bad_samples_add(out, (uint32_t)i, path, why.text, err);
		} else if (found != GP_OK) {
			*err = why;
			status = found;
		}
	}
	return status;
}

static enum gp_status check_lines(const struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				  struct gp_bad_samples *out, struct gp_err *err)
{
	struct gp_err why = {0};
	const enum gp_status found = d->class->check_lines(d, spec, split, out, &why);
	if (is_of_the_file(found))
		return gp_bad_samples_add(out, 0, "", why.text, err);
	if (found != GP_OK)
		*err = why;
	return found;
}

enum gp_status gp_data_check_files(const char *text, enum gp_split split, struct gp_bad_samples *out,
				   struct gp_err *err)
{
	struct gp_dataset d = {0};
	struct gp_data_spec spec;
	GP_TRY(gp_data_spec_open(text, &d, &spec, err));
	const enum gp_status status =
		d.class->check_lines ? check_lines(&d, &spec, split, out, err) : check_each(&d, &spec, split, out, err);
	d.class->close(&d);
	return status;
}

enum gp_status gp_dataset_leave_out(struct gp_dataset *d, const struct gp_bad_samples *bad, struct gp_err *err)
{
	void *memory;
	uint32_t kept = 0, at = 0;
	if (bad->count == 0)
		return GP_OK;
	if (bad->count >= d->samples)
		GP_FAIL(err, GP_INVALID, "not one of %u samples can be read; the first: %s", d->samples,
			bad->list[0].text);
	GP_TRY(gp_alloc_array(&memory, d->samples - bad->count, sizeof(uint32_t), err));
	uint32_t *source = memory;
	for (uint32_t i = 0; i < d->samples; i++)
		if (at < bad->count && bad->list[at].sample == i)
			at++;
		else
			source[kept++] = gp_dataset_source(d, i);
	gp_free(d->kept);
	d->kept = source;
	d->samples = kept;
	return GP_OK;
}

static bool has_one_class(const struct gp_dataset *d)
{
	if (d->values || d->labels > 0)
		return false;
	const int32_t first = d->samples > 1 ? d->class->label(d, gp_dataset_source(d, 0)) : 0;
	for (uint32_t i = 1; i < d->samples; i++)
		if (d->class->label(d, gp_dataset_source(d, i)) != first)
			return false;
	return d->samples > 1;
}

unsigned gp_dataset_doubts(const struct gp_dataset *d)
{
	unsigned doubts = has_one_class(d) ? GP_DOUBT_ONE_CLASS : 0;
	for (int c = 0; d->class->read && c < 3; c++)
		if (d->mean[c] > 1 || d->std[c] > 1)
			doubts |= GP_DOUBT_STATISTICS;
	return doubts;
}
