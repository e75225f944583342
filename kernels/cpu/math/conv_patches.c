/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions as matrix products over gathered patches. See conv_patches.h. Test: tests/unit/test_conv_plain.c
 */
#include "kernels/cpu/math/conv_patches.h"

#include <string.h>

#include "kernels/cpu/math/gemm.h"
#include "kernels/cpu/math/product.h"

#define MOST_PLACES   192 /* gathered at once; a multiple of every tile's height, as is FEWEST_PLACES */
#define FEWEST_PLACES 12
#define PATCH_BYTES   (256 << 10) /* of what is gathered at once, if that is not too few */

/* --- one pass --------------------------------------------------------------------------------------------------- */

struct pass {
	const struct gp_conv_shape *s;
	bool backwards;
	struct gp_conv_image from, to;
	int64_t in, out; /* channels of a group in the image that is read and in the one that is written */
};

static struct pass pass_of(const struct gp_conv_shape *s, bool backwards)
{
	const struct gp_conv_image from = backwards ? s->y : s->x, to = backwards ? s->x : s->y;
	return (struct pass){s, backwards, from, to, from.channels / s->groups, to.channels / s->groups};
}

static struct gp_conv_axis down(const struct pass *p, int64_t phase)
{
	return gp_conv_axis(p->backwards, phase, p->s->kernel_h, p->s->stride_h, p->s->pad_top);
}

static struct gp_conv_axis across(const struct pass *p, int64_t phase)
{
	return gp_conv_axis(p->backwards, phase, p->s->kernel_w, p->s->stride_w, p->s->pad_left);
}

/* Every place sees one place, which lies where it does: nothing is to be gathered. */
static bool is_pointwise(const struct gp_conv_shape *s)
{
	return s->kernel_h == 1 && s->kernel_w == 1 && s->stride_h == 1 && s->stride_w == 1 && s->pad_top == 0 &&
	       s->pad_left == 0 && s->x.h == s->y.h && s->x.w == s->y.w && s->groups == 1;
}

/* What phases (fy, fx) of a pass need: the taps and where their part of the packed kernel lies. */
struct phase {
	int64_t fy, fx;
	struct gp_conv_axis y, x;
	int64_t inner, packed;
};

static struct phase phase_of(const struct pass *p, int64_t fy, int64_t fx, int64_t packed)
{
	struct phase f = {.fy = fy, .fx = fx, .y = down(p, fy), .x = across(p, fx), .packed = packed};
	f.inner = f.y.taps * f.x.taps * p->in;
	return f;
}

/* Floats of the part of one group. */
static int64_t packed_of_group(const struct pass *p, const struct phase *f)
{
	return p->s->bf16 ? gp_gemm_bf16_packed_count(f->inner, p->out) : gp_product_packed_count(f->inner, p->out);
}

static int64_t packed_of(const struct pass *p, const struct phase *f)
{
	return p->s->groups * packed_of_group(p, f);
}

/* Goes through the phases of a pass in their order, from {.fy = 0, .fx = 0}; false behind the last. */
static bool next_phase(const struct pass *p, struct phase *f)
{
	const int64_t packed = f->packed + packed_of(p, f);
	const int64_t across_all = gp_conv_phases(p->backwards, p->s->stride_w, p->to.w);
	const int64_t down_all = gp_conv_phases(p->backwards, p->s->stride_h, p->to.h);
	const int64_t fx = f->fx + 1 < across_all ? f->fx + 1 : 0, fy = f->fy + (fx == 0);
	if (fy >= down_all)
		return false;
	*f = phase_of(p, fy, fx, packed);
	return true;
}

/* --- kernels ---------------------------------------------------------------------------------------------------- */

int64_t gp_conv_packed_count(const struct gp_conv_shape *s, bool backwards)
{
	const struct pass p = pass_of(s, backwards);
	struct phase f = phase_of(&p, 0, 0, 0);
	while (next_phase(&p, &f))
		;
	return f.packed + packed_of(&p, &f);
}

/* Where PyTorch has the weight between channel `in` and `out` of a group, as a pass reads and writes them. */
static int64_t weight_at(const struct pass *p, int64_t group, int64_t in, int64_t out, int64_t ky, int64_t kx)
{
	const struct gp_conv_shape *s = p->s;
	const int64_t outer = group * (s->y.channels / s->groups) + (p->backwards ? in : out);
	const int64_t inner = p->backwards ? out : in;
	return ((outer * (s->x.channels / s->groups) + inner) * s->kernel_h + ky) * s->kernel_w + kx;
}

/* The channel that is read, and the element of the kernel, of a row of a phase's matrix. */
struct row {
	int64_t in, ky, kx;
};

static struct row row_of(const struct pass *p, const struct phase *f, int64_t row)
{
	const int64_t tap = row / p->in;
	return (struct row){row % p->in, f->y.first + tap / f->x.taps * f->y.stride,
			    f->x.first + tap % f->x.taps * f->x.stride};
}

static void pack_phase(const struct pass *p, const struct phase *f, float *packed, const float *weight)
{
	memset(packed + f->packed, 0, (size_t)packed_of(p, f) * sizeof *packed);
	for (int64_t g = 0; g < p->s->groups; g++) {
		float *to = packed + f->packed + g * packed_of_group(p, f);
		for (int64_t row = 0; row < f->inner; row++) {
			const struct row r = row_of(p, f, row);
			for (int64_t out = 0; out < p->out; out++)
				to[gp_product_packed_at(f->inner, row, out)] =
					weight[weight_at(p, g, r.in, out, r.ky, r.kx)];
		}
	}
}

static void pack_pairs(const struct pass *p, const struct phase *f, float *packed, const float *weight, float *room)
{
	for (int64_t row = 0; row < f->inner; row++) {
		const struct row r = row_of(p, f, row);
		for (int64_t out = 0; out < p->out; out++)
			room[row * p->out + out] = weight[weight_at(p, 0, r.in, out, r.ky, r.kx)];
	}
	gp_gemm_bf16_pack((uint32_t *)(packed + f->packed), room, f->inner, p->out, false);
}

void gp_conv_pack(const struct gp_conv_shape *s, bool backwards, float *packed, const float *weight, float *room)
{
	const struct pass p = pass_of(s, backwards);
	struct phase f = phase_of(&p, 0, 0, 0);
	do {
		if (s->bf16)
			pack_pairs(&p, &f, packed, weight, room);
		else
			pack_phase(&p, &f, packed, weight);
	} while (next_phase(&p, &f));
}

void gp_conv_unpack(const struct gp_conv_shape *s, float *weight, const float *grad)
{
	const struct pass p = pass_of(s, false);
	const int64_t taps = s->kernel_h * s->kernel_w;
	for (int64_t g = 0; g < s->groups; g++)
		for (int64_t row = 0; row < taps * p.in; row++) {
			const int64_t tap = row / p.in, in = row % p.in;
			for (int64_t out = 0; out < p.out; out++)
				weight[weight_at(&p, g, in, out, tap / s->kernel_w, tap % s->kernel_w)] = *grad++;
		}
}

/* --- patches ---------------------------------------------------------------------------------------------------- */

/* A place to be written: number (y, x) of its phase in an image, and where its first channel lies. */
struct place {
	int64_t image, y, x, at;
};

static int64_t most(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Floats of a patch, at most. */
static int64_t patch_floats(const struct gp_conv_shape *s)
{
	return s->kernel_h * s->kernel_w * most(s->x.channels, s->y.channels) / s->groups;
}

static int64_t places_at_once(const struct gp_conv_shape *s)
{
	const int64_t places = PATCH_BYTES / ((int64_t)sizeof(float) * patch_floats(s)) / FEWEST_PLACES * FEWEST_PLACES;
	return places < FEWEST_PLACES ? FEWEST_PLACES : places > MOST_PLACES ? MOST_PLACES : places;
}

/* Patches, and products that do not lie where they belong. */
static int64_t plain_room(const struct gp_conv_shape *s)
{
	return places_at_once(s) * (patch_floats(s) + most(s->x.channels, s->y.channels) / s->groups);
}

/* In bf16 pairs of patches, along either side, and of outputs behind these. */
int64_t gp_conv_room(const struct gp_conv_shape *s)
{
	const int64_t pairs = (places_at_once(s) / 2 + 1) * (patch_floats(s) + most(s->x.channels, s->y.channels));
	return plain_room(s) + (s->bf16 ? pairs : 0);
}

/* A row of taps from column x on: `n` channels of each, zeros where there is no column. */
static void gather_row(float *to, const float *row, const struct gp_conv_image *from, int64_t x, int64_t taps,
		       int64_t n)
{
	if (n == from->channels && x >= 0 && x + taps <= from->w) {
		memcpy(to, row + x * n, (size_t)(taps * n) * sizeof *to);
		return;
	}
	for (int64_t tap = 0; tap < taps; tap++, x++, to += n)
		if (x >= 0 && x < from->w)
			memcpy(to, row + x * from->channels, (size_t)n * sizeof *to);
		else
			memset(to, 0, (size_t)n * sizeof *to);
}

static void gather(const struct pass *p, const struct phase *f, const struct place *place, const float *in, float *to)
{
	const int64_t x = place->x * f->x.times + f->x.base, width = f->x.taps * p->in;
	int64_t y = place->y * f->y.times + f->y.base;
	for (int64_t tap = 0; tap < f->y.taps; tap++, y++, to += width)
		if (y >= 0 && y < p->from.h)
			gather_row(to, in + (place->image * p->from.h + y) * p->from.w * p->from.channels, &p->from, x,
				   f->x.taps, p->in);
		else
			memset(to, 0, (size_t)width * sizeof *to);
}

/* What a block of places is used for. */
struct work {
	struct pass pass;
	struct phase phase;
	const float *in, *packed, *y;
	float *out, *grad, *room;
	bool fresh;
};

/* The patches of a group as the rows of a matrix: gathered into the room, or where they lie. */
static struct gp_product patches(const struct work *w, const struct place *place, int64_t count, int64_t group)
{
	const struct pass *p = &w->pass;
	const int64_t inner = w->phase.inner;
	if (is_pointwise(p->s))
		return (struct gp_product){.a = w->in + place[0].at / p->to.channels * p->from.channels,
					   .lda = p->from.channels};
	for (int64_t i = 0; i < count; i++)
		gather(p, &w->phase, &place[i], w->in + group * p->in, w->room + i * inner);
	return (struct gp_product){.a = w->room, .lda = inner};
}

/* Whether the places of a phase lie next to each other. */
static bool in_one_piece(const struct pass *p)
{
	return !p->backwards || (p->s->stride_h == 1 && p->s->stride_w == 1);
}

static uint32_t *pairs_room(const struct work *w)
{
	return (uint32_t *)(w->room + plain_room(w->pass.s));
}

static void multiply_pairs(struct work *w, const struct place *place, int64_t count)
{
	const struct pass *p = &w->pass;
	const bool direct = in_one_piece(p);
	const int64_t inner = w->phase.inner;
	float *apart = w->room + count * inner;
	uint32_t *pairs = pairs_room(w);
	gp_gemm_bf16_pair_columns(pairs, patches(w, place, count, 0).a, count, inner);
	gp_gemm_bf16(direct ? w->out + place[0].at : apart, pairs, (const uint32_t *)(w->packed + w->phase.packed),
		     count, inner, p->out, NULL);
	for (int64_t i = 0; !direct && i < count; i++)
		memcpy(w->out + place[i].at, apart + i * p->out, (size_t)p->out * sizeof *apart);
}

static void weigh_pairs(struct work *w, const struct place *place, int64_t count)
{
	const int64_t inner = w->phase.inner, out = w->pass.out;
	uint32_t *left = pairs_room(w), *right = left + gp_gemm_bf16_pairs(count) * inner;
	gp_gemm_bf16_pair_rows(left, patches(w, place, count, 0).a, count, inner);
	gp_gemm_bf16_pair_rows(right, w->y + place[0].at, count, out);
	gp_gemm_bf16_transposed(w->grad, left, right, count, inner, out, w->fresh, NULL);
	w->fresh = false;
}

static void multiply_block(struct work *w, const struct place *place, int64_t count)
{
	const struct pass *p = &w->pass;
	const bool direct = in_one_piece(p);
	float *apart = w->room + count * w->phase.inner;
	for (int64_t g = 0; g < p->s->groups; g++) {
		struct gp_product product = patches(w, place, count, g);
		product.c = direct ? w->out + place[0].at + g * p->out : apart;
		product.ldc = direct ? p->to.channels : p->out;
		product.b = w->packed + w->phase.packed + g * gp_product_packed_count(w->phase.inner, p->out);
		product.rows = count;
		product.inner = w->phase.inner;
		product.columns = p->out;
		gp_product(&product);
		for (int64_t i = 0; !direct && i < count; i++)
			memcpy(w->out + place[i].at + g * p->out, apart + i * p->out, (size_t)p->out * sizeof *apart);
	}
}

static void weigh_block(struct work *w, const struct place *place, int64_t count)
{
	const struct pass *p = &w->pass;
	for (int64_t g = 0; g < p->s->groups; g++) {
		struct gp_product product = patches(w, place, count, g);
		product.c = w->grad + g * w->phase.inner * p->out;
		product.ldc = p->out;
		product.b = w->y + place[0].at + g * p->out;
		product.ldb = p->to.channels;
		product.rows = w->phase.inner;
		product.inner = count;
		product.columns = p->out;
		product.turned = true;
		product.onto = !w->fresh;
		gp_product(&product);
	}
	w->fresh = false;
}

/* The places of a phase in a row of an image that is written, some at a time. */
struct block {
	struct place place[MOST_PLACES];
	int64_t count, most;
};

typedef void use_fn(struct work *w, const struct place *place, int64_t count);

static void add_row(struct work *w, struct block *b, int64_t image, int64_t y, use_fn *use)
{
	const struct gp_conv_image *to = &w->pass.to;
	const struct phase *f = &w->phase;
	for (int64_t x = f->fx; x < to->w; x += f->x.step) {
		const int64_t at = ((image * to->h + y) * to->w + x) * to->channels;
		b->place[b->count++] = (struct place){image, y / f->y.step, x / f->x.step, at};
		if (b->count < b->most)
			continue;
		use(w, b->place, b->count);
		b->count = 0;
	}
}

/* The places of a phase in rows [from, to), counted over all images. */
static void each_block(struct work *w, int64_t from, int64_t to, use_fn *use)
{
	const int64_t h = w->pass.to.h, step = w->phase.y.step;
	struct block b = {.most = places_at_once(w->pass.s)};
	for (int64_t image = from / h; image * h < to; image++) {
		const int64_t low = most(0, from - image * h), until = to - image * h < h ? to - image * h : h;
		for (int64_t y = low + (w->phase.fy - low % step + step) % step; y < until; y += step)
			add_row(w, &b, image, y, use);
	}
	if (b.count)
		use(w, b.place, b.count);
}

void gp_conv_pass(const struct gp_conv_shape *s, bool backwards, float *out, const float *in, const float *packed,
		  int64_t from, int64_t to, float *room)
{
	struct work w = {.pass = pass_of(s, backwards), .in = in, .packed = packed, .out = out, .room = room};
	w.phase = phase_of(&w.pass, 0, 0, 0);
	do
		each_block(&w, from, to, s->bf16 ? multiply_pairs : multiply_block);
	while (next_phase(&w.pass, &w.phase));
}

void gp_conv_weigh(const struct gp_conv_shape *s, float *grad, const float *x, const float *y, int64_t from, int64_t to,
		   bool fresh, float *room)
{
	struct work w = {.pass = pass_of(s, false), .in = x, .y = y, .grad = grad, .room = room, .fresh = fresh};
	w.phase = phase_of(&w.pass, 0, 0, 0);
	if (fresh && from == to)
		memset(grad, 0, (size_t)(s->groups * w.phase.inner * w.pass.out) * sizeof *grad);
	each_block(&w, from, to, s->bf16 ? weigh_pairs : weigh_block);
}
