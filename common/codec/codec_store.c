/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that lie encoded in memory. See codec_store.h.
 * Test: tests/unit/test_codec_store.c
 */
#include "common/codec/codec_store.h"

#include <float.h>
#include <math.h>

#include "common/codec/stages/smaq.h"

enum { LENGTH_BYTES = 4, ALIGN = 64 };

struct gp_store_coder {
	const struct gp_codec_ops *ops;
	double value[GP_CODEC_MAX_KEYS];
	void *state;
	uint64_t n; /* elements that `state` is for now */
	float room[GP_STORE_BLOCK];
	uint8_t *coded; /* of one block, for round trips */
};

static const uint16_t possible[] = {GP_CODEC_ID_fp16, GP_CODEC_ID_bf16,    GP_CODEC_ID_fp8,      GP_CODEC_ID_s2fp8,
				    GP_CODEC_ID_smaq, GP_CODEC_ID_uniform, GP_CODEC_ID_sortquant};

static bool is_possible(uint16_t id)
{
	for (size_t i = 0; i < sizeof possible / sizeof possible[0]; i++)
		if (possible[i] == id)
			return true;
	return false;
}

static bool leaves_out(const struct gp_codec_spec *spec)
{
	const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[0].id);
	for (int k = 0; k < ops->keys; k++)
		if (strcmp(ops->key[k].name, "prune") == 0 && spec->stage[0].value[k] < 1)
			return true;
	return false;
}

static bool rounds_at_random(const struct gp_codec_spec *spec)
{
	return spec->stage[0].id == GP_CODEC_ID_smaq && gp_smaq_draws(spec->stage[0].value);
}

enum gp_status gp_store_check(const struct gp_codec_spec *spec, bool may_draw, struct gp_err *err)
{
	static const char which[] = "fp16, bf16, fp8, s2fp8, smaq, uniform and sortquant can";
	for (int i = 0; i < spec->stages; i++)
		if (!is_possible(spec->stage[i].id))
			GP_FAIL(err, GP_USAGE, "'%.60s': %s cannot hold what lies in memory; %s, each alone",
				spec->text, gp_codec_ops_by_id(spec->stage[i].id)->info.name, which);
	if (leaves_out(spec))
		GP_FAIL(err, GP_USAGE, "'%.60s' leaves elements out and cannot hold what lies in memory; give prune=1",
			spec->text);
	if (rounds_at_random(spec) && !may_draw)
		GP_FAIL(err, GP_USAGE,
			"'%.60s' rounds stochastically, which is for state= alone; give round=nearest or round=trunc",
			spec->text);
	return GP_OK;
}

bool gp_store_has_scale(const struct gp_codec_spec *spec)
{
	const uint16_t id = spec->stage[0].id;
	return id != GP_CODEC_ID_fp16 && id != GP_CODEC_ID_bf16 && id != GP_CODEC_ID_fp8;
}

static uint64_t bound(const struct gp_codec_spec *spec, uint64_t n)
{
	return LENGTH_BYTES + gp_codec_ops_by_id(spec->stage[0].id)->bound(spec->stage[0].value, n);
}

uint64_t gp_store_block_bytes(const struct gp_codec_spec *spec)
{
	return (bound(spec, GP_STORE_BLOCK) + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t gp_store_bytes(const struct gp_codec_spec *spec, uint64_t n)
{
	const uint64_t whole = n / GP_STORE_BLOCK, rest = n % GP_STORE_BLOCK;
	return whole * gp_store_block_bytes(spec) + (rest > 0 ? bound(spec, rest) : 0);
}

static struct gp_codec_setup setup_of(void)
{
	return (struct gp_codec_setup){.shape = {.ndim = 1, .dim = {GP_STORE_BLOCK}},
				       .n = GP_STORE_BLOCK,
				       .chunks = 1,
				       .encodes = true,
				       .decodes = true};
}

uint64_t gp_store_work(const struct gp_codec_spec *spec, bool encodes)
{
	struct gp_codec_setup setup = setup_of();
	setup.encodes = encodes;
	setup.decodes = !encodes;
	const uint64_t ns = gp_codec_stage_work(gp_codec_ops_by_id(spec->stage[0].id), spec->stage[0].value, &setup);
	const uint64_t simple_ns = gp_codec_work_times(setup.n, GP_CODEC_ELEMENT_NS);
	return ns > simple_ns ? (ns + simple_ns - 1) / simple_ns : 1;
}

uint64_t gp_store_coder_bytes(const struct gp_codec_spec *spec)
{
	const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[0].id);
	const struct gp_codec_setup setup = setup_of();
	return sizeof(struct gp_store_coder) + gp_store_block_bytes(spec) +
	       (ops->bytes ? ops->bytes(spec->stage[0].value, &setup) : 4096);
}

enum gp_status gp_store_coder_new(const struct gp_codec_spec *spec, struct gp_store_coder **out, struct gp_err *err)
{
	void *mem;
	const struct gp_codec_setup setup = setup_of();
	GP_TRY(gp_alloc_array(&mem, 1, sizeof **out, err));
	struct gp_store_coder *c = mem;
	c->ops = gp_codec_ops_by_id(spec->stage[0].id);
	memcpy(c->value, spec->stage[0].value, sizeof c->value);
	c->n = GP_STORE_BLOCK;
	enum gp_status status = gp_alloc_array(&mem, gp_store_block_bytes(spec), 1, err);
	if (status == GP_OK) {
		c->coded = mem;
		status = c->ops->open(c->value, &setup, &c->state, err);
	}
	if (status != GP_OK) {
		gp_free(c->coded);
		gp_free(c);
		return status;
	}
	*out = c;
	return GP_OK;
}

void gp_store_coder_free(struct gp_store_coder *c)
{
	if (!c)
		return;
	c->ops->close(c->state);
	gp_free(c->coded);
	gp_free(c);
}

static uint64_t elements_of(uint64_t n, uint64_t block)
{
	const uint64_t left = n - block * GP_STORE_BLOCK;
	return left < GP_STORE_BLOCK ? left : GP_STORE_BLOCK;
}

uint64_t gp_store_coder_block_bytes(const struct gp_store_coder *c)
{
	return (LENGTH_BYTES + c->ops->bound(c->value, GP_STORE_BLOCK) + ALIGN - 1) / ALIGN * ALIGN;
}

static void set_elements(struct gp_store_coder *c, uint64_t n)
{
	if (n != c->n)
		c->ops->resize(c->state, c->value, n);
	c->n = n;
}

static void limit(const float *x, uint64_t n, float most, float *out)
{
	for (uint64_t i = 0; i < n; i++)
		out[i] = isnan(x[i]) ? 0.0f : x[i] > most ? most : x[i] < -most ? -most : x[i];
}

/* Each codec represents everything up to one of these at least, and the first that does is taken: a quarter of what a float
 * reaches, less for the largest `reach` of smaq, fp8's two formats, and nothing. */
static size_t encode_limited(struct gp_store_coder *c, const struct gp_codec_pass *pass, const float *x, uint64_t n,
			     uint8_t *out)
{
	static const float reach[] = {FLT_MAX / 4, FLT_MAX / 2048, 57344.0f, 448.0f, 0.0f};
	size_t len = 0;
	for (size_t i = 0; i < sizeof reach / sizeof reach[0]; i++) {
		limit(x, n, reach[i], c->room);
		if (c->ops->encode(c->state, pass, c->room, out, &len))
			return len;
	}
	gp_require(false);
	return len;
}

static void encode(struct gp_store_coder *c, const struct gp_codec_pass *pass, const float *x, uint64_t n, uint8_t *to)
{
	size_t len;
	set_elements(c, n);
	if (!c->ops->encode(c->state, pass, x, to + LENGTH_BYTES, &len))
		len = encode_limited(c, pass, x, n, to + LENGTH_BYTES);
	gp_put_u32(to, (uint32_t)len);
}

static void decode(struct gp_store_coder *c, const uint8_t *from, uint64_t n, float *x)
{
	const struct gp_codec_pass pass = {0};
	const struct gp_span in = {from + LENGTH_BYTES, gp_get_u32(from)};
	struct gp_err err;
	set_elements(c, n);
	gp_require(c->ops->decode(c->state, &pass, in, x, &err) == GP_OK);
}

void gp_store_encode(struct gp_store_coder *c, const float *x, uint64_t n, uint64_t block, uint8_t *store)
{
	gp_store_encode_drawn(c, &(struct gp_codec_pass){0}, x, n, block, store);
}

void gp_store_encode_drawn(struct gp_store_coder *c, const struct gp_codec_pass *draws, const float *x, uint64_t n,
			   uint64_t block, uint8_t *store)
{
	struct gp_codec_pass pass = *draws;
	pass.first += block * GP_STORE_BLOCK;
	encode(c, &pass, x + block * GP_STORE_BLOCK, elements_of(n, block),
	       store + block * gp_store_coder_block_bytes(c));
}

void gp_store_decode(struct gp_store_coder *c, const uint8_t *store, uint64_t n, uint64_t block, float *x)
{
	decode(c, store + block * gp_store_coder_block_bytes(c), elements_of(n, block), x + block * GP_STORE_BLOCK);
}

void gp_store_clear_rest(const struct gp_store_coder *c, uint64_t n, uint8_t *store)
{
	const uint64_t len = gp_get_u32(store), most = c->ops->bound(c->value, n);
	memset(store + LENGTH_BYTES + len, 0, most - len);
}

static enum gp_status accept(struct gp_store_coder *c, const uint8_t *from, uint64_t n, struct gp_err *err)
{
	const struct gp_codec_pass pass = {0};
	const struct gp_span in = {from + LENGTH_BYTES, gp_get_u32(from)};
	if (in.len > c->ops->bound(c->value, n))
		GP_FAIL(err, GP_INVALID, "a code of %zu bytes is longer than %llu elements can have", in.len,
			(unsigned long long)n);
	set_elements(c, n);
	if (c->ops->decode(c->state, &pass, in, c->room, err) == GP_OK)
		return GP_OK;
	err->code = GP_INVALID;
	return GP_INVALID;
}

enum gp_status gp_store_accept(struct gp_store_coder *c, const uint8_t *store, uint64_t n, struct gp_err *err)
{
	for (uint64_t block = 0; block < gp_store_blocks(n); block++)
		GP_TRY(accept(c, store + block * gp_store_coder_block_bytes(c), elements_of(n, block), err));
	return GP_OK;
}

void gp_store_round_trip(struct gp_store_coder *c, float *x, uint64_t n, uint64_t block)
{
	encode(c, &(struct gp_codec_pass){0}, x + block * GP_STORE_BLOCK, elements_of(n, block), c->coded);
	decode(c, c->coded, elements_of(n, block), x + block * GP_STORE_BLOCK);
}
