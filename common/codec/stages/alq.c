/* SPDX-License-Identifier: Apache-2.0
 *
 * Level quantizers whose levels follow the data: `alq` (every level) and `amq`
 * (the multiplier of exponential levels). Every `update` passes of a chunk the
 * encoder takes statistics of a few buckets and fits (level_fit.c); the levels
 * travel in each payload, so the decoder remembers nothing. Faghri et al.,
 * "Adaptive gradient quantization for data-parallel SGD", NeurIPS 2020. Formulas
 * and layout: CODECS.md. Test: tests/unit/test_codec_alq.c
 */
#include <math.h>

#include "common/codec/stages/alq.h"
#include "common/codec/stages/level_fit.h"
#include "common/base/rng.h"

enum { KEY_BITS, KEY_BUCKET, KEY_UPDATE, KEY_FIT, KEYS };
enum { NORMLESS, NORMBASED };

/* Numbers per chunk in `fitted`. */
static uint64_t fitted_count(const double *value, bool multiplier)
{
	return multiplier ? 1 : UINT64_C(1) << (int)value[KEY_BITS];
}

/* Bytes before the norms: the multiplier, or the levels but for the ends. */
static uint64_t head_bytes(int bits, bool multiplier)
{
	return multiplier ? 4 : 4 * ((UINT64_C(1) << bits) - 2);
}

static uint64_t bound_of(const double *value, uint64_t n, bool multiplier)
{
	const int bits = (int)value[KEY_BITS];
	return head_bytes(bits, multiplier) + gp_level_bytes(bits, (uint64_t)value[KEY_BUCKET], n);
}

uint64_t gp_adaptive_bytes(const double *value, const struct gp_codec_setup *setup, bool multiplier)
{
	const uint64_t per_chunk = sizeof(uint32_t) + sizeof(float) * fitted_count(value, multiplier);
	return 4096 + (setup->encodes ? setup->chunks * per_chunk * (setup->undo ? 2 : 1) : 0);
}

void gp_adaptive_close(struct gp_adaptive *a)
{
	if (!a)
		return;
	gp_free_aligned(a->coder);
	gp_free(a->age);
	gp_free(a->fitted);
	gp_free(a->backup_age);
	gp_free(a->backup_fitted);
	gp_free(a);
}

static enum gp_status allocate_state(const struct gp_codec_setup *setup, uint64_t per_chunk, uint32_t **age,
				     float **fitted, struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, setup->chunks, sizeof **age, err));
	*age = p;
	GP_TRY(gp_alloc_array(&p, setup->chunks * per_chunk, sizeof **fitted, err));
	*fitted = p;
	return GP_OK;
}

static enum gp_status allocate(struct gp_adaptive *a, const double *value, const struct gp_codec_setup *setup,
			       struct gp_err *err)
{
	const uint64_t per_chunk = fitted_count(value, a->multiplier);
	a->coder = gp_alloc_aligned(sizeof *a->coder);
	if (!a->coder)
		GP_FAIL(err, GP_NOMEM, "out of memory for a codec's levels");
	gp_level_init(a->coder, setup, a->bits, (uint64_t)value[KEY_BUCKET], GP_LEVEL_L2);
	if (setup->encodes)
		GP_TRY(allocate_state(setup, per_chunk, &a->age, &a->fitted, err));
	if (setup->encodes && setup->undo)
		GP_TRY(allocate_state(setup, per_chunk, &a->backup_age, &a->backup_fitted, err));
	return GP_OK;
}

enum gp_status gp_adaptive_open(const double *value, const struct gp_codec_setup *setup, bool multiplier,
				struct gp_adaptive **out, struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct gp_adaptive), err));
	struct gp_adaptive *a = p;
	*a = (struct gp_adaptive){.bits = (int)value[KEY_BITS],
				  .fit = (int)value[KEY_FIT],
				  .multiplier = multiplier,
				  .update = (uint32_t)value[KEY_UPDATE],
				  .chunks = setup->chunks};
	const enum gp_status status = allocate(a, value, setup, err);
	if (status != GP_OK) {
		gp_adaptive_close(a);
		return status;
	}
	*out = a;
	return GP_OK;
}

/* --- state ------------------------------------------------------------------------------------------------------ */

static uint64_t fitted_per_chunk(const struct gp_adaptive *a)
{
	return a->multiplier ? 1 : UINT64_C(1) << a->bits;
}

int gp_adaptive_regions(const struct gp_adaptive *a, struct gp_codec_region *out)
{
	if (!a->age)
		return 0;
	out[0] = (struct gp_codec_region){.data = a->age, .bytes = a->chunks * sizeof *a->age, .backup = a->backup_age};
	out[1] = (struct gp_codec_region){.data = a->fitted,
					  .bytes = a->chunks * fitted_per_chunk(a) * sizeof *a->fitted,
					  .backup = a->backup_fitted};
	return 2;
}

static bool valid_multiplier(float p)
{
	return p > 0 && p < 1;
}

/* From -1 to 1, none below the one before. */
static bool valid_levels(const float *level, int count)
{
	for (int i = 1; i < count; i++)
		if (!(level[i] >= level[i - 1]))
			return false;
	return level[0] == -1 && level[count - 1] == 1;
}

static bool nothing_fitted(const float *fitted, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		if (fitted[i] != 0)
			return false;
	return true;
}

bool gp_adaptive_loaded(const struct gp_adaptive *a)
{
	const uint64_t count = fitted_per_chunk(a);
	for (uint32_t c = 0; c < a->chunks && a->age; c++) {
		const float *fitted = a->fitted + c * count;
		const bool none = nothing_fitted(fitted, count);
		const bool valid = a->multiplier ? valid_multiplier(*fitted) : valid_levels(fitted, (int)count);
		if (a->age[c] >= a->update || !(valid || (none && a->age[c] == 0)))
			return false;
	}
	return true;
}

/* --- statistics ------------------------------------------------------------------------------------------------- */

struct bucket_sum {
	uint64_t n;
	double mean, squares; /* of the normalized elements: mean, and the sum of squares around it */
	double norm;
};

static struct bucket_sum measure(const float *x, uint64_t n, double norm)
{
	struct bucket_sum s = {.n = n, .norm = norm};
	for (uint64_t i = 0; i < n; i++)
		s.mean += (double)x[i] / norm;
	s.mean /= (double)n;
	for (uint64_t i = 0; i < n; i++) {
		const double d = (double)x[i] / norm - s.mean;
		s.squares += d * d;
	}
	return s;
}

/* One bucket out of each of up to GP_ADAPTIVE_ROWS equal stretches, drawn; those of zeros are left out. */
int gp_adaptive_sample(const struct gp_adaptive *a, const struct gp_codec_pass *pass, const uint8_t *norms,
		       struct gp_adaptive_row *rows)
{
	const struct gp_level_coder *c = a->coder;
	const uint64_t buckets = gp_level_buckets(c), stream = gp_rng_stream(GP_RNG_SAMPLE, pass->draw);
	const uint64_t stretches = buckets < GP_ADAPTIVE_ROWS ? buckets : GP_ADAPTIVE_ROWS;
	int count = 0;
	for (uint64_t k = 0; k < stretches; k++) {
		const uint64_t low = k * buckets / stretches, high = (k + 1) * buckets / stretches;
		const uint64_t b = low + gp_rng_below(c->seed, stream, k, (uint32_t)(high - low));
		const uint64_t left = c->n - b * c->bucket, n = left < c->bucket ? left : c->bucket;
		const float norm = gp_get_f32(norms + 4 * b);
		if (norm > 0)
			rows[count++] = (struct gp_adaptive_row){.first = b * c->bucket,
								 .n = n < GP_ADAPTIVE_ROW ? n : GP_ADAPTIVE_ROW,
								 .norm = (double)norm};
	}
	return count;
}

static double deviation(double squares, double n)
{
	return fmax(n > 0 ? sqrt(squares / n) : 0, GP_LEVEL_SIGMA_MIN);
}

/* Statistics in which every element counts alike: the mean over all of them, and the variance within the buckets. */
static struct gp_level_mix normless(const struct bucket_sum *s, int count)
{
	double n = 0, sum = 0, squares = 0;
	for (int i = 0; i < count; i++) {
		n += (double)s[i].n;
		sum += s[i].mean * (double)s[i].n;
		squares += s[i].squares;
	}
	return (struct gp_level_mix){.count = 1,
				     .part = {{.mean = sum / n, .sigma = deviation(squares, n), .weight = 1}}};
}

/* Keeps the `most` with the largest norms in front, in descending order. */
static int keep_largest(struct bucket_sum *s, int count, int most)
{
	int kept = 0;
	for (int i = 0; i < count; i++) {
		const struct bucket_sum next = s[i];
		int at = kept < most ? kept++ : most;
		for (; at > 0 && s[at - 1].norm < next.norm; at--)
			if (at < most)
				s[at] = s[at - 1];
		if (at < most)
			s[at] = next;
	}
	return kept;
}

/* A part per bucket, weighted by its norm; of many buckets those with the largest. */
static struct gp_level_mix normbased(struct bucket_sum *s, int count)
{
	struct gp_level_mix m = {.count = keep_largest(s, count, GP_LEVEL_PARTS)};
	double all = 0;
	for (int i = 0; i < m.count; i++)
		all += s[i].norm;
	for (int i = 0; i < m.count; i++)
		m.part[i] = (struct gp_level_part){.mean = s[i].mean,
						   .sigma = deviation(s[i].squares, (double)s[i].n - 1),
						   .weight = s[i].norm / all};
	return m;
}

/* --- levels ----------------------------------------------------------------------------------------------------- */

/* A pass that is stopped has levels that nobody uses. */
static void fit(const struct gp_adaptive *a, const struct gp_codec_pass *pass, const struct gp_adaptive_row *rows,
		int count, float *out)
{
	struct bucket_sum sums[GP_ADAPTIVE_ROWS];
	double level[GP_LEVEL_MOST];
	for (int i = 0; i < count; i++)
		sums[i] = measure(rows[i].x, rows[i].n, rows[i].norm);
	const struct gp_level_mix mix = a->fit == NORMBASED ? normbased(sums, count) : normless(sums, count);
	if (a->multiplier) {
		const float p = (float)gp_level_fit_amq(&mix, a->bits, (double)out[0], pass->stop);
		out[0] = fminf(fmaxf(p, 0x1p-24f), 1 - 0x1p-24f);
		return;
	}
	gp_level_fit_alq(&mix, a->bits, pass->stop, level);
	for (int i = 0; i < 1 << a->bits; i++)
		out[i] = (float)level[i];
}

/* The coder takes over levels or a multiplier; where there are none, powers of 1/2. */
static void use(const struct gp_adaptive *a, const float *chosen)
{
	float level[GP_LEVEL_MOST];
	const bool none = nothing_fitted(chosen, fitted_per_chunk(a));
	if (a->multiplier || none)
		gp_level_exponential(level, a->bits, none ? 0.5f : chosen[0]);
	gp_level_set(a->coder, a->multiplier || none ? level : chosen, 1 << a->bits);
}

static float *fitted_of(const struct gp_adaptive *a, const struct gp_codec_pass *pass)
{
	return a->fitted + pass->chunk * fitted_per_chunk(a);
}

bool gp_adaptive_fits(const struct gp_adaptive *a, const struct gp_codec_pass *pass)
{
	return pass->eval || a->age[pass->chunk] == 0;
}

void gp_adaptive_use_last(const struct gp_adaptive *a, const struct gp_codec_pass *pass)
{
	use(a, fitted_of(a, pass));
}

void gp_adaptive_passed(const struct gp_adaptive *a, const struct gp_codec_pass *pass)
{
	uint32_t *age = &a->age[pass->chunk];
	*age = (*age + 1) % a->update;
}

/* An evaluation fits its own levels and forgets them. When there is nothing to fit to, the next pass tries again. */
void gp_adaptive_use_fitted(const struct gp_adaptive *a, const struct gp_codec_pass *pass,
			    const struct gp_adaptive_row *rows, int count)
{
	float own[GP_LEVEL_MOST] = {0};
	float *chosen = pass->eval ? own : fitted_of(a, pass);
	if (count > 0) {
		fit(a, pass, rows, count, chosen);
		if (!pass->eval)
			gp_adaptive_passed(a, pass);
	}
	use(a, chosen);
}

uint64_t gp_adaptive_head_bytes(const struct gp_adaptive *a)
{
	return head_bytes(a->bits, a->multiplier);
}

/* With exponential levels the head is the multiplier alone, which is the last level but one. */
void gp_adaptive_write_head(const struct gp_adaptive *a, uint8_t *out)
{
	const float *level = a->coder->table.level;
	gp_put_f32s(out, a->multiplier ? level + (1 << a->bits) - 2 : level + 1, gp_adaptive_head_bytes(a) / 4);
}

enum gp_status gp_adaptive_read_head(const struct gp_adaptive *a, struct gp_span in, struct gp_span *rest,
				     struct gp_err *err)
{
	float chosen[GP_LEVEL_MOST] = {-1};
	const uint64_t head = gp_adaptive_head_bytes(a);
	const int count = 1 << a->bits;
	if (in.len < head)
		GP_FAIL(err, GP_PROTO, "payload of %zu bytes ends within its levels", in.len);
	gp_get_f32s(a->multiplier ? chosen : chosen + 1, in.data, head / 4);
	if (!a->multiplier)
		chosen[count - 1] = 1;
	if (a->multiplier ? !valid_multiplier(chosen[0]) : !valid_levels(chosen, count))
		GP_FAIL(err, GP_PROTO, "payload has levels that do not ascend from -1 to 1");
	use(a, chosen);
	*rest = (struct gp_span){in.data + head, in.len - head};
	return GP_OK;
}

/* --- encode, decode --------------------------------------------------------------------------------------------- */

static void choose(const struct gp_adaptive *a, const struct gp_codec_pass *pass, const float *x, const uint8_t *norms)
{
	struct gp_adaptive_row rows[GP_ADAPTIVE_ROWS];
	if (!gp_adaptive_fits(a, pass)) {
		gp_adaptive_use_last(a, pass);
		gp_adaptive_passed(a, pass);
		return;
	}
	const int count = gp_adaptive_sample(a, pass, norms, rows);
	for (int i = 0; i < count; i++)
		rows[i].x = x + rows[i].first;
	gp_adaptive_use_fitted(a, pass, rows, count);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct gp_adaptive *a = state;
	const uint64_t head = gp_adaptive_head_bytes(a);
	uint8_t *norms = out + head;
	if (!gp_level_write_norms(a->coder, x, norms))
		return false;
	choose(a, pass, x, norms);
	gp_adaptive_write_head(a, out);
	*len = head + gp_level_bytes(a->bits, a->coder->bucket, a->coder->n);
	return gp_level_write_codes(a->coder, pass, x, norms);
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	const struct gp_adaptive *a = state;
	struct gp_span rest;
	GP_TRY(gp_adaptive_read_head(a, in, &rest, err));
	return gp_level_read(a->coder, pass, rest, x, err);
}

/* --- the two codecs --------------------------------------------------------------------------------------------- */

static enum gp_status open_alq(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err)
{
	return gp_adaptive_open(value, setup, false, (struct gp_adaptive **)state, err);
}

static enum gp_status open_amq(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err)
{
	return gp_adaptive_open(value, setup, true, (struct gp_adaptive **)state, err);
}

static void close_adaptive(void *state)
{
	gp_adaptive_close(state);
}

static int regions(void *state, struct gp_codec_region *out)
{
	return gp_adaptive_regions(state, out);
}

static bool loaded(void *state)
{
	return gp_adaptive_loaded(state);
}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	((struct gp_adaptive *)state)->coder->n = n;
}

static uint64_t alq_bytes(const double *value, const struct gp_codec_setup *setup)
{
	return gp_adaptive_bytes(value, setup, false);
}

static uint64_t amq_bytes(const double *value, const struct gp_codec_setup *setup)
{
	return gp_adaptive_bytes(value, setup, true);
}

static struct gp_codec_codes codes(const double *value, uint64_t n, size_t len)
{
	return gp_codec_codes_at_end((int)value[KEY_BITS], n, len);
}

static uint64_t bound_alq(const double *value, uint64_t n)
{
	return bound_of(value, n, false);
}

static uint64_t bound_amq(const double *value, uint64_t n)
{
	return bound_of(value, n, true);
}

static uint64_t work_of(const double *value, const struct gp_codec_setup *setup, uint64_t fit_ns)
{
	return gp_codec_work_add(gp_level_work((uint64_t)value[KEY_BUCKET], setup, 10), setup->encodes ? fit_ns : 0);
}

static uint64_t work_alq(const double *value, const struct gp_codec_setup *setup)
{
	return work_of(value, setup, gp_level_fit_alq_work((int)value[KEY_BITS]));
}

static uint64_t work_amq(const double *value, const struct gp_codec_setup *setup)
{
	return work_of(value, setup, gp_level_fit_amq_work((int)value[KEY_BITS]));
}

#define ADAPTIVE_KEYS                                                                                                  \
	{                                                                                                              \
		[KEY_BITS] = {.name = "bits",                                                                          \
			      .min = 2,                                                                                \
			      .max = GP_LEVEL_MAX_BITS,                                                                \
			      .initial = 4,                                                                            \
			      .help = "bits of a code: 2^bits levels"},                                                \
		[KEY_BUCKET] = {.name = "bucket",                                                                      \
				.min = 1,                                                                              \
				.max = GP_LEVEL_BUCKET_MAX,                                                            \
				.initial = 512,                                                                        \
				.help = "elements that share a norm"},                                                 \
		[KEY_UPDATE] = {.name = "update",                                                                      \
				.min = 1,                                                                              \
				.max = 1000000,                                                                        \
				.initial = 100,                                                                        \
				.help = "passes of a chunk from one fit of the levels to the next"},                   \
		[KEY_FIT] = {.name = "fit",                                                                            \
			     .max = NORMBASED, /* the words stand in the order of their numbers */                     \
			     .words = "normless|normbased",                                                            \
			     .help = "normless: every bucket counts alike; normbased: by its norm"},                   \
	}

const struct gp_codec_ops gp_codec_alq = {
	.id = GP_CODEC_ID_alq,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "alq",
		 .summary = "random rounding to levels fitted to the normalized values",
		 .examples = GP_EXAMPLES("alq", "alq:bits=2,bucket=9,fit=normbased", "alq:bits=7,bucket=64",
					 "alq:bits=2,bucket=1,fit=normbased",
					 "alq:bits=2,bucket=100,update=3,fit=normbased", "alq:bits=3",
					 "alq:bits=3,bucket=64,update=2", "alq:bits=3,bucket=100,update=1",
					 "alq:bits=4,bucket=9000,update=3,fit=normbased", "alq:bits=8")},
	.keys = KEYS,
	.key = ADAPTIVE_KEYS,
	.resize = resize,
	.bound = bound_alq,
	.codes = codes,
	.bytes = alq_bytes,
	.work = work_alq,
	.open = open_alq,
	.close = close_adaptive,
	.regions = regions,
	.loaded = loaded,
	.encode = encode,
	.decode = decode,
};

const struct gp_codec_ops gp_codec_amq = {
	.id = GP_CODEC_ID_amq,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "amq",
		 .summary = "random rounding to powers of a fitted multiplier",
		 .examples =
			 GP_EXAMPLES("amq", "amq:bits=2,bucket=9,fit=normbased", "amq:bits=8,bucket=64",
				     "amq:bits=2,bucket=512,update=3", "amq:bits=3", "amq:bits=3,bucket=64,update=3",
				     "amq:bits=4,bucket=256,fit=normbased", "amq:bits=8")},
	.keys = KEYS,
	.key = ADAPTIVE_KEYS,
	.resize = resize,
	.bound = bound_amq,
	.codes = codes,
	.bytes = amq_bytes,
	.work = work_amq,
	.open = open_amq,
	.close = close_adaptive,
	.regions = regions,
	.loaded = loaded,
	.encode = encode,
	.decode = decode,
};
