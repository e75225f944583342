/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: whatever the chain, the shape and the tensor, encoding gives GP_OK
 * and no more bytes than the bound, and the other end decodes them; a finite
 * tensor arrives finite, one that is not arrives bit for bit, and so does one
 * that travels raw or through a lossless chain. Both ends remember the same, an
 * evaluation changes nothing of it, a step that is taken back leaves it as it
 * was when the step began, and nothing is allocated on the way.
 *
 * Input: one byte loops, one kind of spec, four dimensions, one number of them,
 * one options, one number of an example; then for a random chain one byte its
 * length, for each stage one byte codec, for each key one byte; then the
 * tensors, four bytes each: what is done, pattern, size, seed.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "common/codec/codec_tree.h"
#include "codec_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STAGES = 6, PASSES = 10, MEMORY_MAX = 8 << 20, SAMPLES = 24 };
enum { OPT_UNDO = 1, OPT_GRADIENT = 2, OPT_BOTH = 4 }; /* and two bits: chunks - 1 */
enum { DO_EVAL = 1, DO_UNDO = 2 };

struct input {
	const uint8_t *at, *end;
};

/* 0 past the end. */
static uint8_t next(struct input *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

/* --- the chain --------------------------------------------------------------------------------------------------- */

/* Small values and, from 192 on, values over the whole range. Iterations of poweriter and kmeans cost time alone. */
static double key_value(const struct gp_codec_key *key, uint8_t byte)
{
	const double step = pow(10, -key->decimals), range = key->max - key->min;
	if (key->or_zero && byte % 24 == 0)
		return 0;
	double value = byte < 192 ? byte % 24 * step : floor(range * (byte - 192) / 63 / step) * step;
	if (strcmp(key->name, "iters") == 0 || strcmp(key->name, "level") == 0)
		value = byte % 4;
	return key->min + (value < range ? value : range);
}

static void add_stage(const struct gp_codec_ops *ops, struct input *in, char *text, size_t size)
{
	char shown[GP_SHOWN];
	bool first = true;
	gp_text_append(text, size, "%s%s", text[0] ? "+" : "", ops->info.name);
	for (int k = 0; k < ops->keys; k++) {
		const uint8_t byte = next(in);
		if (byte == 0)
			continue; /* as it is initially */
		gp_text_append(text, size, "%c%s=%s", first ? ':' : ',', ops->key[k].name,
			       gp_codec_key_print(&ops->key[k], key_value(&ops->key[k], byte), shown));
		first = false;
	}
}

/* Stages in the order of their kinds, which most chains that make sense have; others are refused by the parser. */
static void random_chain(struct input *in, char *text, size_t size)
{
	const struct gp_codec_ops *stage[STAGES];
	const int stages = 1 + next(in) % STAGES;
	int codecs = 0;
	while (gp_codec_ops_at(codecs))
		codecs++;
	for (int i = 0; i < stages; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_at(next(in) % codecs);
		int at = i;
		for (; at > 0 && stage[at - 1]->kind > ops->kind; at--)
			stage[at] = stage[at - 1];
		stage[at] = ops;
	}
	text[0] = '\0';
	for (int i = 0; i < stages; i++)
		add_stage(stage[i], in, text, size);
}

/* The examples of all codecs, one after the other. */
static const char *example(unsigned number)
{
	unsigned count = 0;
	for (int pass = 0; pass < 2; pass++) {
		unsigned n = 0;
		for (int i = 0; gp_codec_info(i); i++)
			for (const char *const *text = gp_codec_info(i)->examples; *text; text++, n++)
				if (pass == 1 && n == number % count)
					return *text;
		count = n;
	}
	return "raw";
}

static bool choose_spec(uint8_t kind, uint8_t number, struct input *in, struct gp_codec_spec *spec)
{
	char text[GP_CODEC_SPEC_MAX];
	struct gp_err err = {0};
	if (kind % 2)
		random_chain(in, text, sizeof text);
	else
		snprintf(text, sizeof text, "%s", example(number));
	return gp_codec_spec_parse(text, spec, &err) == GP_OK &&
	       gp_codec_spec_set_samples(spec, SAMPLES, &err) == GP_OK;
}

/* --- both ends --------------------------------------------------------------------------------------------------- */

struct ends {
	struct gp_codec_spec spec;
	struct gp_shape shape;
	size_t n;
	struct gp_codec *encoder, *decoder;
	struct gp_codec *both; /* (optional) does what the two do */
	uint32_t chunks;
	bool undo;
	uint64_t step, passes; /* of training */
	uint64_t begun;        /* what the encoder remembered when the step began */
	float *x, *y;
	uint8_t *payload;
	size_t bound;
};

/* An input whose instances would take so much that few of them fit into a second is not worth one. */
static bool affordable(const struct gp_codec_spec *spec, const struct gp_shape *shape,
		       const struct gp_codec_options *options)
{
	struct gp_err err = {0};
	uint64_t bytes;
	return gp_codec_bytes_for(spec, shape, options, &bytes, &err) == GP_OK && bytes < MEMORY_MAX;
}

static bool open_end(struct ends *e, struct gp_codec_options options, enum gp_codec_role role, struct gp_codec **out)
{
	struct gp_err err = {0};
	options.role = role;
	return affordable(&e->spec, &e->shape, &options) &&
	       gp_codec_open(&e->spec, &e->shape, &options, out, &err) == GP_OK;
}

static bool open_ends(struct ends *e, uint8_t choice)
{
	const struct gp_codec_options options = {.seed = 7,
						 .chunks = 1 + (choice >> 4 & 3),
						 .undo = choice & OPT_UNDO,
						 .has_gradient = choice & OPT_GRADIENT};
	e->chunks = options.chunks;
	e->undo = options.undo;
	if (!open_end(e, options, GP_CODEC_ENCODES, &e->encoder) ||
	    !open_end(e, options, GP_CODEC_DECODES, &e->decoder) ||
	    ((choice & OPT_BOTH) && !open_end(e, options, GP_CODEC_BOTH, &e->both)))
		return false;
	e->begun = gp_codec_state_hash(e->encoder);
	e->bound = gp_codec_bound(e->encoder);
	gp_require(e->bound == gp_codec_bound(e->decoder));
	return true;
}

static void close_ends(struct ends *e)
{
	gp_codec_free(e->encoder);
	gp_codec_free(e->decoder);
	gp_codec_free(e->both);
}

/* --- tensors ----------------------------------------------------------------------------------------------------- */

static uint32_t draw(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	return *seed ^= *seed << 5;
}

static float from_bits(uint32_t bits)
{
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* -1..1 */
static float even(uint32_t *seed)
{
	return (float)(int32_t)draw(seed) * 0x1p-31f;
}

static float any_finite(uint32_t *seed)
{
	const uint32_t bits = draw(seed);
	return from_bits(gp_not_finite(from_bits(bits)) ? bits & ~UINT32_C(0x40000000) : bits);
}

static float not_finite(uint32_t *seed)
{
	static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001};
	return from_bits(odd[draw(seed) % 5]);
}

static float extreme(uint32_t number)
{
	static const float list[] = {0,        -0.0f,    1,         FLT_MAX, -FLT_MAX, FLT_MIN, 0x1p-149f, -0x1p-149f,
				     0x1p109f, 0x1p127f, -0x1p126f, 1e-30f,  65504,    65520,   448,       57344};
	return list[number % (sizeof list / sizeof list[0])];
}

enum { EVEN, HUGE_ONES, DENORMAL, CONSTANT, ANY, NOT_FINITE, EXTREMES, LOW_RANK, SPARSE, PATTERNS };

static float element(unsigned pattern, uint8_t how, size_t i, uint32_t *seed)
{
	switch (pattern) {
	case EVEN:
		return ldexpf(even(seed), (int)how - 128);
	case HUGE_ONES:
		return how % 2 ? FLT_MAX * even(seed) : copysignf(FLT_MAX, even(seed));
	case DENORMAL:
		return from_bits(draw(seed) & UINT32_C(0x807fffff));
	case CONSTANT:
		return extreme(how);
	case ANY:
		return any_finite(seed);
	case NOT_FINITE:
		return draw(seed) % (1 + how) ? even(seed) : not_finite(seed);
	case EXTREMES:
		return extreme(how ? draw(seed) % how : draw(seed));
	case LOW_RANK:
		return ldexpf((float)(i % 7), (int)how / 2) * (float)(i / 7 % 5);
	default:
		return draw(seed) % 16 ? 0 : ldexpf(even(seed), (int)how - 127);
	}
}

/* Overflows of a pattern become the largest number: what is not finite is a pattern by itself. */
static void fill(struct ends *e, unsigned pattern, uint8_t how, uint8_t number)
{
	uint32_t seed = 1 + number;
	for (size_t i = 0; i < e->n; i++) {
		e->x[i] = element(pattern, how, i, &seed);
		if (pattern != NOT_FINITE && gp_not_finite(e->x[i]))
			e->x[i] = FLT_MAX;
	}
}

static bool all_finite(const float *x, size_t n)
{
	uint32_t odd = 0;
	for (size_t i = 0; i < n; i++)
		odd |= gp_not_finite(x[i]);
	return !odd;
}

/* --- one tensor there -------------------------------------------------------------------------------------------- */

/* Whether the payload says that the whole tensor travels raw. Behind byte stages that is not seen. */
static bool says_raw(const struct ends *e)
{
	return !gp_codec_spec_lossless(&e->spec) && !gp_codec_byte_stage(&e->spec, 0) && e->payload[0] == GP_CODEC_RAW;
}

static void check_arrived(const struct ends *e)
{
	const bool finite = all_finite(e->x, e->n);
	if (!finite || says_raw(e) || gp_codec_spec_lossless(&e->spec))
		gp_require(memcmp(e->x, e->y, e->n * sizeof *e->x) == 0);
	else
		gp_require(all_finite(e->y, e->n));
}

/* The instance that does both writes the same, and reads it as the same. */
static void check_both(const struct ends *e, const struct gp_codec_pass *pass, size_t len)
{
	struct gp_err err = {0};
	size_t again;
	uint8_t *payload = malloc(e->bound + 1);
	float *y = malloc(e->n * sizeof *y);
	gp_require(gp_codec_encode_pass(e->both, pass, e->x, payload, e->bound, &again, &err) == GP_OK);
	gp_require(again == len && memcmp(payload, e->payload, len) == 0);
	gp_require(gp_codec_decode_pass(e->both, pass, (struct gp_span){payload, len}, y, &err) == GP_OK);
	gp_require(memcmp(y, e->y, e->n * sizeof *y) == 0);
	free(payload);
	free(y);
}

/* The payload lies in a block of its own size, so that a sanitizer sees what is read behind it. */
static void decode(const struct ends *e, const struct gp_codec_pass *pass, size_t len)
{
	struct gp_err err = {0};
	uint8_t *payload = malloc(len + !len);
	memcpy(payload, e->payload, len);
	gp_require(gp_codec_decode_pass(e->decoder, pass, (struct gp_span){payload, len}, e->y, &err) == GP_OK);
	free(payload);
}

static void send(struct ends *e, const struct gp_codec_pass *pass)
{
	struct gp_err err = {0};
	const uint64_t calls = gp_mem_calls(), memory = gp_codec_state_hash(e->encoder);
	size_t len;
	gp_require(gp_codec_encode_pass(e->encoder, pass, e->x, e->payload, e->bound, &len, &err) == GP_OK);
	gp_require(len <= e->bound);
	decode(e, pass, len);
	check_arrived(e);
	if (e->both)
		check_both(e, pass, len);
	gp_require(gp_codec_state_shared_hash(e->encoder) == gp_codec_state_shared_hash(e->decoder));
	gp_require(!pass->eval || gp_codec_state_hash(e->encoder) == memory);
	gp_require(gp_mem_calls() == calls);
}

static void take_back(struct ends *e)
{
	gp_codec_undo(e->encoder, e->step);
	gp_codec_undo(e->decoder, e->step);
	if (e->both)
		gp_codec_undo(e->both, e->step);
	gp_require(gp_codec_state_hash(e->encoder) == e->begun);
	gp_require(gp_codec_state_shared_hash(e->encoder) == gp_codec_state_shared_hash(e->decoder));
	e->passes = e->step * e->chunks;
}

static void one_tensor(struct ends *e, struct input *in)
{
	const uint8_t what = next(in), pattern = next(in), how = next(in), seed = next(in);
	uint32_t sample[CODEC_FUZZ_ELEMENTS];
	if (e->undo && (what & DO_UNDO))
		take_back(e);
	const uint32_t chunk = (uint32_t)(e->passes % e->chunks);
	e->step = e->passes / e->chunks;
	if (chunk == 0)
		e->begun = gp_codec_state_hash(e->encoder);
	for (int64_t i = 0; i < e->shape.dim[0]; i++)
		sample[i] = (uint32_t)(i * (1 + seed % 3) + what) % (SAMPLES + 2); /* one too many, and some twice */
	const struct gp_codec_pass pass = {.draw = e->passes,
					   .step = e->step,
					   .chunk = chunk,
					   .eval = what & DO_EVAL,
					   .sample = what & 4 ? NULL : sample};
	fill(e, pattern % PATTERNS, how, seed);
	send(e, &pass);
	e->passes += !pass.eval;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static float x[CODEC_FUZZ_ELEMENTS], y[CODEC_FUZZ_ELEMENTS];
	struct ends e = {.x = x, .y = y};
	if (size < CODEC_FUZZ_HEAD + 1)
		return 0;
	struct input in = {data + CODEC_FUZZ_HEAD + 1, data + size};
	if (!choose_spec(data[1], data[8], &in, &e.spec))
		return 0;
	e.shape = codec_fuzz_shape(data);
	e.n = (size_t)gp_shape_elements(&e.shape);
	codec_fuzz_loops(data[0]);
	if (open_ends(&e, data[7])) {
		e.payload = malloc(e.bound + 1);
		for (int i = 0; i < PASSES && (i == 0 || in.at < in.end); i++)
			one_tensor(&e, &in);
		free(e.payload);
	}
	close_ends(&e);
	return 0;
}
