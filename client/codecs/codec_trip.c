/* SPDX-License-Identifier: Apache-2.0
 *
 * See codec_trip.h. Test: tests/unit/test_cmd_codec.c
 */
#include "client/codecs/codec_trip.h"

#include <math.h>
#include <string.h>

#include "common/wire/account.h"

/* So many passes at least, however long they take. */
#define MEASURE_REPEATS 3

/* "act, grad, hidden" as far as it fits. */
static const char *names_of(const struct gp_st_file *f, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	for (int i = 0; i < gp_st_count(f) && used + 8 < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", gp_st_at(f, i)->name);
	if (used >= size)
		memcpy(text + size - 4, "...", 4);
	return text;
}

/* in (n, a, b) to out (n, b, a). */
static void turn(const float *in, int64_t n, int64_t a, int64_t b, float *out)
{
	for (int64_t k = 0; k < n; k++, in += a * b, out += a * b)
		for (int64_t i = 0; i < a; i++)
			for (int64_t j = 0; j < b; j++)
				out[j * a + i] = in[i * b + j];
}

/* From (N,C,H,W) to (N,H,W,C), where that makes a difference. */
static void turn_channels_last(struct gp_trip_tensor *t, bool channels_last)
{
	const int64_t *d = t->tensor->shape.dim;
	t->shape = t->tensor->shape;
	t->turned = t->shape.ndim == 4 && t->tensor->count > 0 && !channels_last;
	if (!t->turned)
		return;
	t->shape = (struct gp_shape){.ndim = 4, .dim = {d[0], d[2], d[3], d[1]}};
	turn(t->x, d[0], d[1], d[2] * d[3], t->scratch);
	memcpy(t->x, t->scratch, t->tensor->count * sizeof *t->x);
}

const float *gp_trip_decoded(struct gp_trip_tensor *t)
{
	const int64_t *d = t->tensor->shape.dim;
	if (!t->turned)
		return t->y;
	turn(t->y, d[0], d[2] * d[3], d[1], t->scratch);
	return t->scratch;
}

static enum gp_status read_tensor(const char *path, const char *name, bool channels_last, struct gp_trip_tensor *t,
				  struct gp_err *err)
{
	char names[160];
	GP_TRY(gp_st_open(path, &t->file, err));
	t->tensor = gp_st_find(t->file, name);
	if (!t->tensor)
		GP_FAIL(err, GP_INVALID, "%s: no tensor '%.60s'; it has %s", path, name,
			names_of(t->file, names, sizeof names));
	if (t->tensor->dtype == GP_ST_I32)
		GP_FAIL(err, GP_INVALID,
			"it holds I32, not real numbers; integers cross a cut as they are, without a codec");
	const uint64_t n = t->tensor->count;
	t->x = gp_alloc_aligned(n * sizeof *t->x);
	t->y = gp_alloc_aligned(n * sizeof *t->y);
	t->scratch = gp_alloc_aligned(n * sizeof *t->scratch);
	if (!t->x || !t->y || !t->scratch)
		GP_FAIL(err, GP_NOMEM, "no memory for a tensor of %llu elements", (unsigned long long)n);
	GP_TRY(gp_st_read_f32(t->tensor, t->x, err));
	turn_channels_last(t, channels_last);
	return GP_OK;
}

enum gp_status gp_trip_open(const char *path, const char *name, bool channels_last, struct gp_trip_tensor *t,
			    struct gp_err *err)
{
	*t = (struct gp_trip_tensor){0};
	enum gp_status status = read_tensor(path, name, channels_last, t, err);
	if (status != GP_OK && t->tensor)
		gp_err_prefix(err, "%s: tensor '%.60s'", path, name);
	if (status != GP_OK)
		gp_trip_close(t);
	return status;
}

void gp_trip_close(struct gp_trip_tensor *t)
{
	gp_st_close(t->file);
	gp_free_aligned(t->x);
	gp_free_aligned(t->y);
	gp_free_aligned(t->scratch);
	gp_free_aligned(t->rows.x);
	gp_free_aligned(t->sequences.x);
	*t = (struct gp_trip_tensor){0};
}

/* --- texts without their padding ---------------------------------------------------------------------------------- */

static int32_t length_at(const struct gp_st_tensor *length, int64_t i)
{
	int32_t n;
	memcpy(&n, (const uint8_t *)length->data + 4 * i, sizeof n); /* little-endian, as the host */
	return n;
}

/* The positions of all texts, and of the longest one; false: these are no lengths of the tensor's texts. */
static bool count_positions(const struct gp_trip_tensor *t, const struct gp_st_tensor *length, int64_t *all,
			    int64_t *longest)
{
	const int64_t *d = t->shape.dim;
	*all = *longest = 0;
	if (t->shape.ndim != 3 || length->dtype != GP_ST_I32 || length->count != (uint64_t)d[0])
		return false;
	for (int64_t i = 0; i < d[0]; i++) {
		const int64_t n = length_at(length, i);
		if (n < 1 || n > d[1])
			return false;
		*all += n;
		*longest = n > *longest ? n : *longest;
	}
	return *all > 0;
}

static bool make_part(struct gp_trip_part *p, struct gp_shape shape)
{
	const uint64_t count = gp_shape_elements(&shape);
	*p = (struct gp_trip_part){.shape = shape, .count = count, .x = gp_alloc_aligned(count * sizeof *p->x)};
	return p->x != NULL;
}

enum gp_status gp_trip_drop_padding(struct gp_trip_tensor *t, const struct gp_st_tensor *length, bool *dropped,
				    struct gp_err *err)
{
	const int64_t texts = t->shape.dim[0], positions = t->shape.dim[1], features = t->shape.dim[2];
	int64_t all, longest;
	*dropped = count_positions(t, length, &all, &longest);
	if (!*dropped)
		return GP_OK;
	if (!make_part(&t->rows, (struct gp_shape){.ndim = 2, .dim = {all, features}}) ||
	    !make_part(&t->sequences, (struct gp_shape){.ndim = 3, .dim = {texts, longest, features}}))
		GP_FAIL(err, GP_NOMEM, "no memory for a tensor without its padding");
	float *row = t->rows.x;
	for (int64_t i = 0; i < texts; i++) {
		const float *const x = t->x + i * positions * features;
		const size_t n = (size_t)(length_at(length, i) * features), most = (size_t)(longest * features);
		float *const sequence = t->sequences.x + i * longest * features;
		memcpy(row, x, n * sizeof *x);
		memcpy(sequence, x, n * sizeof *x);
		memset(sequence + n, 0, (most - n) * sizeof *x);
		row += n;
	}
	t->length = length;
	return GP_OK;
}

/* What a codec of this spec gets. */
static struct gp_trip_part part_for(const struct gp_trip_tensor *t, const struct gp_codec_spec *spec)
{
	const enum gp_codec_lengths lengths = gp_codec_spec_lengths(spec);
	if (t->rows.x && lengths == GP_CODEC_ELEMENTS)
		return t->rows;
	if (t->rows.x && lengths == GP_CODEC_SEQUENCES)
		return t->sequences;
	return (struct gp_trip_part){t->shape, t->tensor->count, t->x};
}

/* --- a codec on it ------------------------------------------------------------------------------------------------ */

static void keep_fastest(uint64_t *best, uint64_t ns)
{
	ns = ns ? ns : 1;
	*best = *best == 0 || ns < *best ? ns : *best;
}

/* `before`: the codec's counts when the pass began. */
static void note_pass(const struct gp_codec *c, const struct gp_codec_stats *before, size_t len, struct gp_trip *out)
{
	struct gp_codec_stats stats;
	gp_codec_get_stats(c, &stats);
	out->payload_bytes = len;
	out->fell_back = stats.raw_fallbacks > before->raw_fallbacks;
	for (int i = 0; i < GP_CODEC_MAX_STAGES; i++)
		out->skipped[i] = stats.skipped[i] > before->skipped[i];
}

/* A codec that is tried, and where its payloads go. The tensor has samples 0 to N - 1, N its first dimension, in every
 * pass, so that `delta` meets them again. */
struct trial {
	struct gp_codec *codec;
	uint8_t *payload;
	uint32_t *sample; /* NULL: a scalar, or no samples */
};

static enum gp_status number_samples(struct trial *c, const struct gp_shape *shape, struct gp_err *err)
{
	const int64_t samples = shape->ndim > 0 ? shape->dim[0] : 0;
	void *p;
	if (samples < 1 || samples > UINT32_MAX)
		return GP_OK;
	GP_TRY(gp_alloc_array(&p, (size_t)samples, sizeof *c->sample, err));
	c->sample = p;
	for (int64_t i = 0; i < samples; i++)
		c->sample[i] = (uint32_t)i;
	return GP_OK;
}

static enum gp_status open_trial(struct trial *c, const struct gp_codec_spec *spec, const struct gp_shape *shape,
				 struct gp_err *err)
{
	GP_TRY(gp_codec_new(spec, shape, 0, &c->codec, err));
	c->payload = gp_alloc_aligned(gp_codec_bound(c->codec));
	if (!c->payload)
		GP_FAIL(err, GP_NOMEM, "no memory for a payload of %zu bytes", gp_codec_bound(c->codec));
	return number_samples(c, shape, err);
}

static void close_trial(struct trial *c)
{
	gp_free(c->sample);
	gp_free_aligned(c->payload);
	gp_codec_free(c->codec);
}

static enum gp_status encode(const struct trial *c, const float *x, size_t *len, struct gp_err *err)
{
	const struct gp_codec_pass pass = {.sample = c->sample};
	return gp_codec_encode_pass(c->codec, &pass, x, c->payload, gp_codec_bound(c->codec), len, err);
}

static enum gp_status decode(const struct trial *c, size_t len, float *y, struct gp_err *err)
{
	return gp_codec_decode(c->codec, (struct gp_span){c->payload, len}, y, err);
}

static enum gp_status warm_up(const struct trial *c, const float *x, float *y, int passes, struct gp_err *err)
{
	size_t len;
	for (int i = 0; i < passes && gp_codec_remembers(c->codec); i++) {
		GP_TRY(encode(c, x, &len, err));
		GP_TRY(decode(c, len, y, err));
	}
	return GP_OK;
}

/* Always the same draw; an instance that remembers still gives other bytes each time, so that the first pass is the one
 * whose error is told, whatever the machine's speed. */
static enum gp_status measure(struct gp_trip_tensor *t, const struct gp_trip_part *p, const struct trial *c,
			      uint64_t measure_ns, struct gp_trip *out, struct gp_err *err)
{
	const uint64_t begin = gp_now_ns(), least_ns = p->count > 1 ? measure_ns : 0;
	struct gp_codec_stats warm;
	gp_codec_get_stats(c->codec, &warm);
	for (int i = 0; i < MEASURE_REPEATS || gp_now_ns() - begin < least_ns; i++) {
		size_t len;
		const uint64_t before = gp_now_ns();
		GP_TRY(encode(c, p->x, &len, err));
		const uint64_t between = gp_now_ns();
		GP_TRY(decode(c, len, i ? t->scratch : t->y, err));
		keep_fastest(&out->encode_ns, between - before);
		keep_fastest(&out->decode_ns, gp_now_ns() - between);
		if (i == 0)
			note_pass(c->codec, &warm, len, out);
	}
	return GP_OK;
}

/* The receiver clears the positions that a text does not have. */
static void clear_padding(const struct gp_trip_tensor *t, const struct gp_trip_part *p)
{
	const int64_t *d = p->shape.dim;
	for (int64_t i = 0; i < d[0]; i++) {
		const int64_t n = length_at(t->length, i);
		memset(t->y + (i * d[1] + n) * d[2], 0, (size_t)((d[1] - n) * d[2]) * sizeof *t->y);
	}
}

static void find_errors(const struct gp_trip_tensor *t, const struct gp_trip_part *p, struct gp_trip *out)
{
	double error = 0, xx = 0, yy = 0, xy = 0;
	for (uint64_t i = 0; i < p->count; i++) {
		const double x = (double)p->x[i], y = (double)t->y[i], d = fabs(x - y);
		if (!isfinite(x))
			continue;
		error += d * d;
		xx += x * x;
		yy += y * y;
		xy += x * y;
		out->max_err = fmax(out->max_err, d);
	}
	out->rel_err = error > 0 ? sqrt(error / fmax(xx, 1e-300)) : 0;
	out->cosine = error == 0 ? 1 : xx > 0 && yy > 0 ? fmin(xy / sqrt(xx) / sqrt(yy), 1) : 0;
}

enum gp_status gp_trip_run(struct gp_trip_tensor *t, const struct gp_codec_spec *spec, int warmup, uint64_t measure_ns,
			   struct gp_trip *out, struct gp_err *err)
{
	struct trial c = {0};
	const struct gp_trip_part part = part_for(t, spec), *const p = &part;
	enum gp_status status = open_trial(&c, spec, &p->shape, err);
	if (status == GP_OK)
		status = warm_up(&c, p->x, t->y, warmup, err);
	if (status == GP_OK) {
		*out = (struct gp_trip){.elements = t->rows.x ? t->rows.count : t->tensor->count};
		status = measure(t, p, &c, measure_ns, out, err);
	}
	close_trial(&c);
	if (status == GP_OK && t->length && p->x == t->sequences.x)
		clear_padding(t, p);
	if (status == GP_OK)
		find_errors(t, p, out);
	return status;
}

double gp_trip_bits(const struct gp_trip *t)
{
	return t->elements ? 8.0 * (double)t->payload_bytes / (double)t->elements : 0;
}

double gp_trip_encode_rate(const struct gp_trip *t)
{
	return (double)t->elements / (double)t->encode_ns;
}

double gp_trip_decode_rate(const struct gp_trip *t)
{
	return (double)t->elements / (double)t->decode_ns;
}

double gp_trip_break_even(const struct gp_trip *t)
{
	const double saved = 32.0 * (double)t->elements - 8.0 * (double)t->payload_bytes;
	return saved > 0 ? saved / ((double)(t->encode_ns + t->decode_ns) * 1e-9) : 0;
}
