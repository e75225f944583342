/* SPDX-License-Identifier: Apache-2.0
 *
 * `delta`: of an activation only what has changed since the same sample was
 * seen last (AQ-SGD: Wang et al., "Fine-tuning language models over slow
 * networks using activation quantization with guarantees", NeurIPS 2022). Both
 * ends remember every sample as the decoder has it. The sample's number
 * travels; the encoder needs it from its caller. Layout: CODECS.md.
 * Test: tests/unit/test_codec_delta.c; fuzz: fuzz_codec_delta
 */
#include <math.h>

#include "common/codec/codec_impl.h"

enum { SAMPLES_MAX = 1 << 24 };

/* Larger numbers are neither remembered nor sent as differences: a coded difference may be 2^15.5 times as large as its
 * largest element (poweriter.h says why), and the sum with what is remembered has to stay finite. */
#define LARGEST 0x1p100f

/* Per row of the batch, 4 bytes: the sample's number; with DELTA the row is a difference. NOWHERE: not remembered. */
enum { NOWHERE = 0x7fffffff, ENTRY_BYTES = 4 };
#define DELTA UINT32_C(0x80000000)

struct delta {
	uint64_t rows, row; /* of a tensor: samples, elements of one */
	uint32_t samples;
	float *last;      /* samples * row, as decoded */
	uint8_t *visited; /* samples: last holds something */
	uint32_t *entry;  /* rows: of the tensor between split and learn */
	uint64_t *stamp;  /* samples: the pass that named it last, so that none is named twice */
	uint64_t pass;
	struct journal {
		uint64_t step, first; /* whose rows are in it; its first pass, by `pass` */
		uint32_t used, room;  /* rows; room 0: no undo */
		uint32_t *sample;     /* DELTA: was visited */
		float *row;           /* room * row: as it was before the step */
	} journal;
};

static enum gp_status shapes(const double *value, const struct gp_shape *shape, struct gp_codec_parts *out,
			     struct gp_err *err)
{
	if (value[0] == 0)
		GP_FAIL(err, GP_INVALID, "samples=N has to say how many samples the data set has");
	if (shape->ndim < 1)
		GP_FAIL(err, GP_INVALID, "a scalar has no samples: the first dimension has to be the batch");
	*out = (struct gp_codec_parts){
		.count = 1, .shape = {*shape}, .side_bound = ENTRY_BYTES * (uint64_t)shape->dim[0]};
	return GP_OK;
}

/* Rows that a step can name. */
static uint64_t journal_room(const struct gp_codec_setup *setup, uint64_t samples)
{
	const uint64_t rows = setup->chunks * (uint64_t)setup->shape.dim[0];
	return !setup->undo ? 0 : rows < samples ? rows : samples;
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t rows = (uint64_t)setup->shape.dim[0], row = setup->n / rows, samples = (uint64_t)value[0];
	uint64_t sum, journal;
	if (!gp_mul_ok(samples, 4 * row + sizeof(uint64_t) + 1, &sum) ||
	    !gp_mul_ok(journal_room(setup, samples), 4 * row + sizeof(uint32_t), &journal))
		return UINT64_MAX;
	return gp_add_ok(sum, sizeof(struct delta) + ENTRY_BYTES * rows, &sum) && gp_add_ok(sum, journal, &sum)
		       ? sum
		       : UINT64_MAX;
}

static void close_delta(void *state)
{
	struct delta *d = state;
	if (!d)
		return;
	gp_free(d->last);
	gp_free(d->visited);
	gp_free(d->entry);
	gp_free(d->stamp);
	gp_free(d->journal.sample);
	gp_free(d->journal.row);
	gp_free(d);
}

static bool allocate(struct delta *d)
{
	struct journal *j = &d->journal;
	d->last = gp_calloc((size_t)d->samples, d->row * sizeof *d->last);
	d->visited = gp_calloc(d->samples, sizeof *d->visited);
	d->entry = gp_calloc(d->rows, sizeof *d->entry);
	d->stamp = gp_calloc(d->samples, sizeof *d->stamp);
	if (j->room > 0) {
		j->sample = gp_calloc(j->room, sizeof *j->sample);
		j->row = gp_calloc(j->room, d->row * sizeof *j->row);
	}
	return d->last && d->visited && d->entry && d->stamp && (j->room == 0 || (j->sample && j->row));
}

static enum gp_status open_delta(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	struct delta *d = gp_calloc(1, sizeof *d);
	if (!d)
		GP_FAIL(err, GP_NOMEM, "out of memory for delta");
	d->rows = (uint64_t)setup->shape.dim[0];
	d->row = setup->n / d->rows;
	d->samples = (uint32_t)value[0];
	d->journal = (struct journal){.first = 1, .room = (uint32_t)journal_room(setup, d->samples)};
	if (!allocate(d)) {
		close_delta(d);
		GP_FAIL(err, GP_NOMEM, "out of memory for %.0f samples of %llu bytes in delta", value[0],
			(unsigned long long)(4 * setup->n / (uint64_t)setup->shape.dim[0]));
	}
	*state = d;
	return GP_OK;
}

static int regions(void *state, struct gp_codec_region *out)
{
	const struct delta *d = state;
	out[0] = (struct gp_codec_region){
		.data = d->last, .bytes = d->samples * d->row * sizeof *d->last, .shared = true};
	out[1] = (struct gp_codec_region){.data = d->visited, .bytes = d->samples, .shared = true};
	return 2;
}

/* From the next pass on. */
static void clear_journal(struct delta *d)
{
	d->journal.used = 0;
	d->journal.first = d->pass + 1;
}

static bool loaded(void *state)
{
	struct delta *d = state;
	clear_journal(d);
	for (uint32_t i = 0; i < d->samples; i++)
		if (d->visited[i] > 1)
			return false;
	return true;
}

static float *last_of(const struct delta *d, uint32_t entry)
{
	return d->last + (entry & ~DELTA) * d->row;
}

static void begin_pass(struct delta *d, const struct gp_codec_pass *pass)
{
	d->pass++;
	if (pass->eval || pass->step == d->journal.step)
		return;
	d->journal.step = pass->step;
	d->journal.first = d->pass;
	d->journal.used = 0;
}

/* Saves a row before it changes for the first time in a step. False: there is no room, because a chunk came more
 * than once. */
static bool note_row(struct delta *d, uint32_t index)
{
	struct journal *j = &d->journal;
	if (j->room == 0 || d->stamp[index] >= j->first)
		return true;
	if (j->used == j->room)
		return false;
	j->sample[j->used] = index | (d->visited[index] ? DELTA : 0);
	memcpy(j->row + j->used * d->row, last_of(d, index), d->row * sizeof *j->row);
	j->used++;
	return true;
}

static void undo(void *state, uint64_t step)
{
	struct delta *d = state;
	const struct journal *j = &d->journal;
	if (step != j->step)
		return;
	for (uint32_t i = 0; i < j->used; i++) {
		memcpy(last_of(d, j->sample[i]), j->row + i * d->row, d->row * sizeof *j->row);
		d->visited[j->sample[i] & ~DELTA] = (j->sample[i] & DELTA) != 0;
	}
	clear_journal(d);
}

/* What the row of sample `index` becomes. A sample named before in the same tensor is not remembered twice. */
static uint32_t entry_for(struct delta *d, uint32_t index)
{
	if (index >= d->samples || d->stamp[index] == d->pass || !note_row(d, index))
		return NOWHERE;
	d->stamp[index] = d->pass;
	return index | (d->visited[index] ? DELTA : 0);
}

/* 1 for NaN, too. */
static uint32_t too_large(float v)
{
	return !(fabsf(v) <= LARGEST);
}

/* y = x - last; false when some y is too large. */
static bool subtract(const float *restrict x, const float *restrict last, uint64_t n, float *restrict y)
{
	uint32_t odd = 0;
#pragma omp simd reduction(| : odd)
	for (uint64_t i = 0; i < n; i++) {
		y[i] = x[i] - last[i];
		odd |= too_large(y[i]);
	}
	return !odd;
}

static bool copy(const float *restrict x, uint64_t n, float *restrict y)
{
	uint32_t odd = 0;
#pragma omp simd reduction(| : odd)
	for (uint64_t i = 0; i < n; i++)
		odd |= too_large(x[i]);
	memcpy(y, x, n * sizeof *y);
	return !odd;
}

/* In an evaluation, and without numbers, every row travels whole. The next stage codes all rows together, so that one
 * that is too large would spoil the differences of others. */
static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	struct delta *d = state;
	const bool remembers = pass->sample && !pass->eval;
	bool differs = false, small = true;
	begin_pass(d, pass);
	for (uint64_t i = 0; i < d->rows; i++) {
		const float *from = x + i * d->row;
		float *to = tensor[0] + i * d->row;
		d->entry[i] = remembers ? entry_for(d, pass->sample[i]) : NOWHERE;
		gp_put_u32(side + ENTRY_BYTES * i, d->entry[i]);
		const bool difference = d->entry[i] & DELTA;
		small &= difference ? subtract(from, last_of(d, d->entry[i]), d->row, to) : copy(from, d->row, to);
		differs |= difference;
	}
	*side_len = ENTRY_BYTES * d->rows;
	return small || !differs;
}

/* The row as both ends remember it; one that has become too large is forgotten. */
static void remember(struct delta *d, uint32_t entry, const float *restrict row)
{
	float *restrict last = last_of(d, entry);
	const bool difference = entry & DELTA;
	const uint64_t n = d->row;
	uint32_t odd = 0;
#pragma omp simd reduction(| : odd)
	for (uint64_t i = 0; i < n; i++) {
		last[i] = difference ? last[i] + row[i] : row[i];
		odd |= too_large(last[i]);
	}
	d->visited[entry & ~DELTA] = !odd;
}

static void learn(void *state, const struct gp_codec_pass *pass, const float *const *tensor)
{
	(void)pass;
	struct delta *d = state;
	for (uint64_t i = 0; i < d->rows; i++)
		if (d->entry[i] != NOWHERE)
			remember(d, d->entry[i], tensor[0] + i * d->row);
}

static enum gp_status read_entries(struct delta *d, const struct gp_codec_pass *pass, struct gp_span side,
				   struct gp_err *err)
{
	if (side.len != ENTRY_BYTES * d->rows)
		GP_FAIL(err, GP_PROTO, "delta: %zu bytes of sample numbers instead of %llu", side.len,
			(unsigned long long)(ENTRY_BYTES * d->rows));
	begin_pass(d, pass);
	for (uint64_t i = 0; i < d->rows; i++) {
		const uint32_t entry = gp_get_u32(side.data + ENTRY_BYTES * i), index = entry & ~DELTA;
		d->entry[i] = entry;
		if (entry == NOWHERE)
			continue;
		if (index >= d->samples || d->stamp[index] == d->pass || pass->eval)
			GP_FAIL(err, GP_PROTO, "delta: row %llu cannot be sample %u here", (unsigned long long)i,
				index);
		if ((entry & DELTA) && !d->visited[index])
			GP_FAIL(err, GP_PROTO, "delta: a difference to sample %u, which was not seen yet", index);
		if (!note_row(d, index))
			GP_FAIL(err, GP_PROTO, "delta: sample %u is one more than a step's chunks have", index);
		d->stamp[index] = d->pass;
	}
	return GP_OK;
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	struct delta *d = state;
	GP_TRY(read_entries(d, pass, side, err));
	for (uint64_t i = 0; i < d->rows; i++) {
		const float *row = tensor[0] + i * d->row;
		if (d->entry[i] != NOWHERE) {
			remember(d, d->entry[i], row);
			row = last_of(d, d->entry[i]);
		}
		memcpy(x + i * d->row, row, d->row * sizeof *x);
	}
	return GP_OK;
}

const struct gp_codec_ops gp_codec_delta = {
	.id = GP_CODEC_ID_delta,
	.kind = GP_CODEC_WRAPPER,
	.info = {.name = "delta",
		 .summary = "what has changed since a sample was seen last; both ends remember",
		 .examples = GP_EXAMPLES("delta:samples=20+uniform:bits=2", "delta:samples=3+fp16+zstd")},
	.keys = 1,
	.key = {{.name = "samples", .max = SAMPLES_MAX, .help = "of the data set; 0: a training run fills it in"}},
	.shapes = shapes,
	.bytes = state_bytes,
	.open = open_delta,
	.close = close_delta,
	.regions = regions,
	.loaded = loaded,
	.undo = undo,
	.split = split,
	.learn = learn,
	.join = join,
};
