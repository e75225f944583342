/* SPDX-License-Identifier: Apache-2.0
 *
 * An instance of a codec chain: the tree of tensor stages (codec_tree.c) with
 * the byte stages around it. A byte stage writes a head, so that it can be
 * skipped for a payload that it would not shorten. Layout: CODECS.md, "Payload".
 * Test: tests/unit/test_codec.c; fuzz: tests/fuzz/fuzz_codec_decode.c
 */
#include "common/codec/codec_chain.h"

enum { FORM_STORED = GP_CODEC_RAW, STAGE_HEAD = GP_CODEC_HEAD + GP_CODEC_LENGTH };

/* --- plan ------------------------------------------------------------------------------------------------------- */

/* A shape without elements has an empty payload, and neither tree nor stages. */
static bool is_empty(const struct gp_shape *shape)
{
	bool zero = false;
	if (shape->ndim < 1 || shape->ndim > GP_MAX_DIMS)
		return false;
	for (int i = 0; i < shape->ndim; i++) {
		if (shape->dim[i] < 0)
			return false;
		zero |= shape->dim[i] == 0;
	}
	return zero;
}

static int unit_of(const struct gp_codec_spec *spec)
{
	for (int i = 0; i < spec->stages; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[i].id);
		if (ops->kind == GP_CODEC_QUANTIZER && ops->unit)
			return ops->unit(spec->stage[i].value);
	}
	return 1;
}

static struct gp_codec_setup byte_setup(const struct gp_codec *c, int stage, const struct gp_codec_options *options)
{
	struct gp_codec_setup setup = gp_codec_setup_for(options, GP_CODEC_MAX_NODES + stage, false);
	setup.shape = c->tree.node[0].shape;
	setup.n = c->stage[stage].most;
	setup.unit = unit_of(&c->spec);
	return setup;
}

const char *gp_codec_byte_stage(const struct gp_codec_spec *spec, int i)
{
	for (int s = 0; s < spec->stages; s++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[s].id);
		if (ops->kind == GP_CODEC_BYTES && i-- == 0)
			return ops->info.name;
	}
	return NULL;
}

static const double *byte_value(const struct gp_codec *c, int stage)
{
	return c->spec.stage[c->spec.stages - c->stages + stage].value;
}

static enum gp_status plan_byte_stages(struct gp_codec *c, struct gp_err *err)
{
	uint64_t most = gp_codec_tree_bound(&c->tree);
	for (int i = 0; i < c->spec.stages; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_id(c->spec.stage[i].id);
		if (ops->kind != GP_CODEC_BYTES)
			continue;
		c->stage[c->stages++] = (struct gp_codec_byte_stage){.ops = ops, .most = most};
		most += STAGE_HEAD;
	}
	if (c->stages > 0 && most > UINT32_MAX)
		GP_FAIL(err, GP_INVALID, "codec stage %d (%s): a tensor of %llu elements is too large for it",
			c->spec.stages, c->stage[c->stages - 1].ops->info.name, (unsigned long long)c->n);
	c->bound = most;
	return GP_OK;
}

static bool remembers(const struct gp_codec_spec *spec)
{
	for (int i = 0; i < spec->stages; i++)
		if (gp_codec_ops_by_id(spec->stage[i].id)->regions)
			return true;
	return false;
}

static struct gp_codec_options with_role(const struct gp_codec_options *options, enum gp_codec_role role)
{
	struct gp_codec_options o = *options;
	o.role = role;
	return o;
}

/* Everything that follows from spec, shape and options. Allocates nothing. */
static enum gp_status plan(struct gp_codec *c, const struct gp_codec_spec *spec, const struct gp_shape *shape,
			   const struct gp_codec_options *options, struct gp_err *err)
{
	*c = (struct gp_codec){.spec = *spec,
			       .role = options->role,
			       .chunks = options->chunks ? options->chunks : 1,
			       .device = options->device};
	if (is_empty(shape))
		return GP_OK;
	c->two_trees = options->role == GP_CODEC_BOTH && remembers(spec);
	const struct gp_codec_options first = with_role(options, c->two_trees ? GP_CODEC_ENCODES : options->role);
	const struct gp_codec_options second = with_role(options, GP_CODEC_DECODES);
	GP_TRY(gp_codec_tree_plan(&c->tree, &c->spec, shape, &first, err));
	if (c->two_trees)
		GP_TRY(gp_codec_tree_plan(&c->other, &c->spec, shape, &second, err));
	c->n = c->most = c->tree.node[0].n;
	GP_TRY(plan_byte_stages(c, err));
	c->coded = c->stages;
	return GP_OK;
}

static int scratch_buffers(const struct gp_codec *c)
{
	if (c->stages == 0)
		return 0;
	return c->stages > 1 && c->role != GP_CODEC_ENCODES ? 2 : 1;
}

/* Saturates. */
static uint64_t planned_bytes(const struct gp_codec *c, const struct gp_codec_options *options)
{
	uint64_t sum = sizeof *c + (uint64_t)scratch_buffers(c) * (c->bound + 64);
	uint64_t part[2 + GP_CODEC_MAX_STAGES] = {c->tree.memory_bytes, c->other.memory_bytes};
	for (int i = 0; i < c->stages; i++) {
		const struct gp_codec_setup setup = byte_setup(c, i, options);
		part[2 + i] = c->stage[i].ops->bytes ? c->stage[i].ops->bytes(byte_value(c, i), &setup) : 4096;
	}
	for (int i = 0; i < 2 + c->stages; i++)
		if (!gp_add_ok(sum, part[i], &sum))
			return UINT64_MAX;
	return sum;
}

enum gp_status gp_codec_bound_for(const struct gp_codec_spec *spec, const struct gp_shape *shape, uint64_t *bytes,
				  struct gp_err *err)
{
	struct gp_codec c;
	GP_TRY(plan(&c, spec, shape, &(struct gp_codec_options){0}, err));
	*bytes = c.bound;
	return GP_OK;
}

enum gp_status gp_codec_bytes_for(const struct gp_codec_spec *spec, const struct gp_shape *shape,
				  const struct gp_codec_options *options, uint64_t *bytes, struct gp_err *err)
{
	struct gp_codec c;
	GP_TRY(plan(&c, spec, shape, options, err));
	*bytes = planned_bytes(&c, options);
	return GP_OK;
}

/* Saturates. */
static uint64_t planned_work(const struct gp_codec *c, const struct gp_codec_options *options)
{
	uint64_t ns = gp_codec_work_add(c->tree.work_ns, c->other.work_ns);
	for (int i = 0; i < c->stages; i++) {
		const struct gp_codec_setup setup = byte_setup(c, i, options);
		ns = gp_codec_work_add(ns, gp_codec_stage_work(c->stage[i].ops, byte_value(c, i), &setup));
	}
	return ns;
}

enum gp_status gp_codec_work_for(const struct gp_codec_spec *spec, const struct gp_shape *shape,
				 const struct gp_codec_options *options, uint64_t *ns, struct gp_err *err)
{
	struct gp_codec c;
	GP_TRY(plan(&c, spec, shape, options, err));
	*ns = planned_work(&c, options);
	return GP_OK;
}

/* --- open ------------------------------------------------------------------------------------------------------- */

static enum gp_status open_byte_stages(struct gp_codec *c, const struct gp_codec_options *options, struct gp_err *err)
{
	for (int i = 0; i < c->stages; i++) {
		struct gp_codec_byte_stage *s = &c->stage[i];
		const struct gp_codec_setup setup = byte_setup(c, i, options);
		GP_TRY(s->ops->open(byte_value(c, i), &setup, &s->state, err));
	}
	for (int i = 0; i < scratch_buffers(c); i++)
		GP_TRY(gp_codec_alloc_payload(options->device, c->bound, &c->scratch[i], err));
	return GP_OK;
}

static enum gp_status open_all(struct gp_codec *c, const struct gp_codec_options *options, struct gp_err *err)
{
	const struct gp_codec_options first = with_role(options, c->two_trees ? GP_CODEC_ENCODES : options->role);
	const struct gp_codec_options second = with_role(options, GP_CODEC_DECODES);
	const struct gp_codec_mask *mask = options->activation ? options->activation->tree.mask : NULL;
	if (c->n == 0)
		return GP_OK;
	GP_TRY(gp_codec_tree_open(&c->tree, &first, mask, err));
	if (c->two_trees)
		GP_TRY(gp_codec_tree_open(&c->other, &second, mask, err));
	return open_byte_stages(c, options, err);
}

enum gp_status gp_codec_open(const struct gp_codec_spec *spec, const struct gp_shape *shape,
			     const struct gp_codec_options *options, struct gp_codec **out, struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof **out, err));
	struct gp_codec *c = p;
	enum gp_status status = plan(c, spec, shape, options, err);
	if (status != GP_OK) {
		gp_free(c);
		return status;
	}
	status = open_all(c, options, err);
	if (status != GP_OK) {
		gp_codec_free(c);
		return status;
	}
	*out = c;
	return GP_OK;
}

enum gp_status gp_codec_new(const struct gp_codec_spec *spec, const struct gp_shape *shape, uint64_t seed,
			    struct gp_codec **out, struct gp_err *err)
{
	return gp_codec_open(spec, shape, &(struct gp_codec_options){.seed = seed}, out, err);
}

void gp_codec_free(struct gp_codec *c)
{
	if (!c)
		return;
	gp_codec_tree_close(&c->tree);
	gp_codec_tree_close(&c->other);
	for (int i = 0; i < c->stages; i++)
		c->stage[i].ops->close(c->stage[i].state);
	gp_codec_free_payload(c->device, c->scratch[0]);
	gp_codec_free_payload(c->device, c->scratch[1]);
	gp_free(c);
}

enum gp_codec_lengths gp_codec_spec_lengths(const struct gp_codec_spec *spec)
{
	enum gp_codec_lengths lengths = GP_CODEC_ELEMENTS;
	for (int i = 0; i < spec->stages; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_id(spec->stage[i].id);
		if (ops->kind != GP_CODEC_BYTES && !ops->resize && !ops->reshape)
			return GP_CODEC_ONE_SHAPE;
		if (ops->needs_shape)
			lengths = GP_CODEC_SEQUENCES;
	}
	return lengths;
}

void gp_codec_resize(struct gp_codec *c, const struct gp_shape *shape)
{
	const uint64_t n = gp_shape_elements(shape);
	gp_require(gp_codec_spec_lengths(&c->spec) != GP_CODEC_ONE_SHAPE && !c->device && n <= c->most);
	c->n = n;
	c->bound = 0;
	if (n == 0)
		return;
	gp_codec_tree_resize(&c->tree, shape);
	if (c->two_trees)
		gp_codec_tree_resize(&c->other, shape);
	c->bound = gp_codec_tree_bound(&c->tree);
	for (int i = 0; i < c->stages; i++, c->bound += STAGE_HEAD) {
		c->stage[i].most = c->bound;
		if (c->stage[i].ops->reshape)
			c->stage[i].ops->reshape(c->stage[i].state, byte_value(c, i), shape);
	}
}

size_t gp_codec_bound(const struct gp_codec *c)
{
	return c->bound;
}

void gp_codec_get_stats(const struct gp_codec *c, struct gp_codec_stats *out)
{
	*out = c->stats;
}

static struct gp_codec_pass within(const struct gp_codec *c, const struct gp_codec_pass *pass)
{
	struct gp_codec_pass p = *pass;
	p.chunk %= c->chunks;
	return p;
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* The stage that comes next finds the codes behind the head of one that was skipped, and no more in what one has
 * packed. */
static void move_codes(struct gp_codec_tree *t, bool coded)
{
	for (int i = 0; i < t->codes_count; i++)
		t->codes[i].at += GP_CODEC_HEAD;
	t->codes_count = coded ? 0 : t->codes_count;
}

/* Byte stage `i` over the `len` bytes at `at`, in front of which there is room for the heads of this stage and those
 * after it. Packs them to `begin`, or only puts a head in front: bytes that do not compress are not moved. */
static bool encode_stage(struct gp_codec *c, int i, const struct gp_codec_pass *pass, uint8_t *at, size_t *len,
			 uint8_t *begin)
{
	const struct gp_codec_byte_stage *s = &c->stage[i];
	size_t packed;
	if (s->ops->tell)
		s->ops->tell(s->state, c->tree.codes, c->tree.codes_count);
	if (!s->ops->squeeze(s->state, pass, (struct gp_span){at, *len}, begin + STAGE_HEAD, &packed)) {
		gp_codec_head_write(at - GP_CODEC_HEAD, FORM_STORED);
		c->stats.skipped[i]++;
		*len += GP_CODEC_HEAD;
		return false;
	}
	gp_codec_head_write(begin, GP_CODEC_CODED);
	gp_put_u32(begin + GP_CODEC_HEAD, (uint32_t)*len);
	*len = STAGE_HEAD + packed;
	return true;
}

/* Begins where the last stage will end in `out`, if as many stages pay as did the last time. */
static enum gp_status encode_all(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x, uint8_t *out,
				 size_t *payload, struct gp_err *err)
{
	bool in_out = c->coded % 2 == 0;
	uint8_t *at = (in_out ? out : c->scratch[0]) + GP_CODEC_HEAD * c->stages;
	size_t len;
	GP_TRY(gp_codec_tree_encode(&c->tree, pass, x, at, &len, err));
	c->coded = 0;
	for (int i = 0; i < c->stages; i++) {
		uint8_t *begin = (in_out ? c->scratch[0] : out) + GP_CODEC_HEAD * (c->stages - 1 - i);
		const bool coded = encode_stage(c, i, pass, at, &len, begin);
		move_codes(&c->tree, coded);
		at = coded ? begin : at - GP_CODEC_HEAD;
		in_out ^= coded;
		c->coded += coded;
	}
	if (!in_out)
		memcpy(out, at, len);
	*payload = len;
	return gp_codec_check_stop(pass, err);
}

enum gp_status gp_codec_encode_pass(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x, uint8_t *out,
				    size_t cap, size_t *len, struct gp_err *err)
{
	if (cap < c->bound)
		GP_FAIL(err, GP_INTERNAL, "encoding needs room for %zu bytes and got %zu", c->bound, cap);
	if (c->role == GP_CODEC_DECODES)
		GP_FAIL(err, GP_INTERNAL, "this codec was opened to decode");
	*len = 0;
	if (c->n > 0) {
		const struct gp_codec_pass p = within(c, pass);
		GP_TRY(encode_all(c, &p, x, out, len, err));
		c->stats.raw_fallbacks += c->tree.fell_back;
	}
	c->stats.encoded++;
	return GP_OK;
}

enum gp_status gp_codec_encode(struct gp_codec *c, const float *x, uint64_t draw, uint8_t *out, size_t cap, size_t *len,
			       struct gp_err *err)
{
	return gp_codec_encode_pass(c, &(struct gp_codec_pass){.draw = draw}, x, out, cap, len, err);
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

/* What stage `i` was given: a piece of `in`, or `room` filled. */
static enum gp_status decode_stage(struct gp_codec *c, int i, const struct gp_codec_pass *pass, struct gp_span *in,
				   uint8_t *room, struct gp_err *err)
{
	struct gp_codec_byte_stage *s = &c->stage[i];
	int form;
	GP_TRY(gp_codec_head_read(*in, &form, err));
	if (form == FORM_STORED) {
		c->stats.skipped[i] += c->role == GP_CODEC_DECODES;
		*in = (struct gp_span){in->data + GP_CODEC_HEAD, in->len - GP_CODEC_HEAD};
		return GP_OK;
	}
	if (in->len < STAGE_HEAD)
		GP_FAIL(err, GP_PROTO, "payload ends where the length before %s should be", s->ops->info.name);
	const uint32_t len = gp_get_u32(in->data + GP_CODEC_HEAD);
	if (len > s->most)
		GP_FAIL(err, GP_PROTO, "payload was %u bytes before %s; at most %llu are possible", len,
			s->ops->info.name, (unsigned long long)s->most);
	const struct gp_span body = {in->data + STAGE_HEAD, in->len - STAGE_HEAD};
	GP_TRY(s->ops->expand(s->state, pass, body, room, len, err));
	*in = (struct gp_span){room, len};
	return GP_OK;
}

static enum gp_status decode_all(struct gp_codec *c, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				 struct gp_err *err)
{
	for (int i = c->stages - 1, next = 0; i >= 0; i--) {
		GP_TRY(decode_stage(c, i, pass, &in, c->scratch[next], err));
		next ^= c->stages > 1 && in.data == c->scratch[next];
	}
	return gp_codec_tree_decode(c->two_trees ? &c->other : &c->tree, pass, in, x, err);
}

enum gp_status gp_codec_decode_pass(struct gp_codec *c, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				    struct gp_err *err)
{
	if (c->role == GP_CODEC_ENCODES)
		GP_FAIL(err, GP_INTERNAL, "this codec was opened to encode");
	if (in.len > gp_codec_bound(c))
		GP_FAIL(err, GP_PROTO, "payload of %zu bytes; at most %zu are possible", in.len, gp_codec_bound(c));
	if (c->n > 0) {
		const struct gp_codec_pass p = within(c, pass);
		GP_TRY(decode_all(c, &p, in, x, err));
	}
	c->stats.decoded++;
	return GP_OK;
}

enum gp_status gp_codec_decode(struct gp_codec *c, struct gp_span in, float *x, struct gp_err *err)
{
	return gp_codec_decode_pass(c, &(struct gp_codec_pass){0}, in, x, err);
}
