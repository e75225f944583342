/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of attention.h over lanes.h, for one instruction set: each of
 * attention_portable.c, attention_avx2.c, attention_avx512.c and
 * attention_neon.c includes this once and gives its two functions names. Only
 * for those files.
 *
 * Glossary: weights = softmax of a row of scores; ld = floats from one row of
 * a matrix in the room to the next.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_cpu_attention.c
 */
#ifndef GP_CPU_ATTENTION_BODY_H
#define GP_CPU_ATTENTION_BODY_H

#include <math.h>

#include "kernels/cpu/math/attention_room.h"
#include "kernels/cpu/math/lanes_exp.h"
#include "kernels/cpu/math/lanes_product.h"

/* Rows [0, n) of a head's tensor, times a factor, side by side; columns up to ld become 0. */
static void take_rows(float *to, int64_t ld, const float *from, const struct gp_attention *a, int64_t n, float factor)
{
	const struct lanes all = lanes_all(factor);
	for (int64_t i = 0; i < n; i++)
		for (int64_t l = 0; l < ld; l += LANES)
			lanes_store(to + i * ld + l,
				    lanes_multiply(lanes_load_some(from + i * a->stride + l, a->width - l), all));
}

static void give_row(float *to, const float *from, int64_t width, float factor)
{
	for (int64_t l = 0; l < width; l += LANES)
		lanes_store_some(to + l, lanes_multiply(lanes_load(from + l), lanes_all(factor)), width - l);
}

static void give_rows(float *to, const float *from, int64_t ld, const struct gp_attention *a, int64_t n, float factor)
{
	for (int64_t i = 0; to && i < n; i++)
		give_row(to + i * a->stride, from + i * ld, a->width, factor);
}

static void clear_padding(float *to, const struct gp_attention *a, const struct gp_attention_head *h)
{
	for (int64_t i = h->tokens; to && i < a->positions; i++)
		memset(to + i * a->stride, 0, (size_t)a->width * sizeof *to);
}

/* A row of the head that comes next. */
static void ask_ahead(const float *row, const struct gp_attention *a, const struct gp_attention_head *h)
{
	for (int64_t l = 0; h->ahead && l < a->width; l += LANES)
		__builtin_prefetch(row + h->ahead + l, 0, 2);
}

/* A row that will be written. */
static void ask_to_write(const float *row, const struct gp_attention *a)
{
	for (int64_t l = 0; row && l < a->width; l += LANES)
		__builtin_prefetch(row + l, 1, 2);
}

/* --- dropout ---------------------------------------------------------------------------------------------------- */

/* Words of row i, for as many columns as there are tokens at least. Rows of a head are asked for in their order. */
static const uint32_t *words_of_row(const struct gp_attention *a, const struct gp_attention_head *h, int64_t i,
				    uint32_t *room)
{
	const uint64_t each = gp_attention_blocks(a->most), alone = gp_attention_whole_blocks(h->tokens, 1);
	const uint64_t together = gp_attention_whole_blocks(a->most, DRAWN_ROWS);
	const uint64_t first = h->first_block + (uint64_t)i * each;
	if (DRAWN_ROWS * alone < together) { /* few tokens: what lies between their words costs more than it saves */
		a->draw(a->seed, a->stream, first, alone, room);
		return room;
	}
	if (i % DRAWN_ROWS == 0)
		a->draw(a->seed, a->stream, first, together, room);
	return room + (uint64_t)(i % DRAWN_ROWS) * each * 4;
}

/* --- forward ---------------------------------------------------------------------------------------------------- */

/* Scores of columns that are no tokens: their exponential is 0. */
static void mask_row(float *row, const struct gp_attention_head *h)
{
	for (int64_t j = h->tokens; j < lanes_whole(h->tokens); j++)
		row[j] = -INFINITY;
}

static float largest_of_row(const float *row, int64_t columns)
{
	struct lanes largest = lanes_all(-INFINITY);
	for (int64_t j = 0; j < columns; j += LANES)
		largest = lanes_larger(lanes_load(row + j), largest); /* NaN does not count */
	return lanes_largest(largest);
}

/* exp(score - largest) in place of the scores, 0 where dropped; returns the sum before anything was. */
static float exponentials(float *row, int64_t columns, float largest, const uint32_t *words, uint32_t threshold)
{
	struct lanes sum = lanes_all(0.0f);
	for (int64_t j = 0; j < columns; j += LANES) {
		struct lanes e = lanes_exp(lanes_subtract(lanes_load(row + j), lanes_all(largest)));
		sum = lanes_add(sum, e);
		if (words)
			e = lanes_unless_word_below(words + j, threshold, e);
		lanes_store(row + j, e);
	}
	return lanes_sum(sum);
}

/* Memory that the rows of a block will need later. */
static void ask_for_row(const struct gp_attention *a, const struct gp_attention_head *h, int64_t i)
{
	const int64_t at = i * a->stride;
	ask_ahead(h->q + at, a, h);
	ask_ahead(h->k + at, a, h);
	ask_ahead(h->v + at, a, h);
	if (!h->dout) {
		ask_to_write(h->out + at, a);
		return;
	}
	ask_ahead(h->out + at, a, h);
	ask_ahead(h->dout + at, a, h);
	ask_to_write(h->dq ? h->dq + at : NULL, a);
	ask_to_write(h->dk ? h->dk + at : NULL, a);
	ask_to_write(h->dv ? h->dv + at : NULL, a);
}

/* Weights, but for the division by their sum, in place of the scores of queries [i, i + n). */
static void weigh_rows(const struct gp_attention *a, const struct gp_attention_head *h, const struct attention_room *r,
		       int64_t i, int64_t n)
{
	const int64_t columns = lanes_whole(h->tokens);
	for (int64_t k = 0; k < n; k++) { /* apart, so that the processor has several rows in hand */
		mask_row(r->scores + k * r->ld, h);
		h->sums[2 * (i + k)] = largest_of_row(r->scores + k * r->ld, columns);
	}
	for (int64_t k = 0; k < n; k++) {
		float *sums = h->sums + 2 * (i + k);
		const uint32_t *words = a->threshold ? words_of_row(a, h, i + k, r->words) : NULL;
		sums[1] = 1.0f / exponentials(r->scores + k * r->ld, columns, sums[0], words, a->threshold);
		ask_for_row(a, h, i + k);
	}
}

/* Queries [i, i + n). */
static void forward_block(const struct gp_attention *a, const struct gp_attention_head *h,
			  const struct attention_room *r, int64_t i, int64_t n)
{
	const int64_t columns = lanes_whole(h->tokens);
	take_rows(r->queries, r->wide, h->q + i * a->stride, a, n, a->scale);
	lanes_multiply_matrix(&(struct lanes_product){.c = r->scores,
						      .ldc = r->ld,
						      .a = r->queries,
						      .lda = r->wide,
						      .b = {r->keys, 0},
						      .rows = n,
						      .inner = a->width,
						      .columns = columns});
	weigh_rows(a, h, r, i, n);
	lanes_multiply_matrix(&(struct lanes_product){.c = r->block,
						      .ldc = r->wide,
						      .a = r->scores,
						      .lda = r->ld,
						      .b = {r->values, r->wide},
						      .rows = n,
						      .inner = h->tokens,
						      .columns = r->wide});
	for (int64_t k = 0; k < n; k++)
		give_row(h->out + (i + k) * a->stride, r->block + k * r->wide, a->width,
			 h->sums[2 * (i + k) + 1] * a->keep);
}

static inline int64_t rows_from(const struct gp_attention_head *h, int64_t i)
{
	return h->tokens - i < GP_ATTENTION_ROWS ? h->tokens - i : GP_ATTENTION_ROWS;
}

static void forward_head(const struct gp_attention *a, const struct gp_attention_head *h, float *room)
{
	struct attention_room r;
	gp_attention_lay_out(&r, a->most, a->width, room, false);
	lanes_pack_turned(r.keys, h->k, a->stride, h->tokens, a->width);
	take_rows(r.values, r.wide, h->v, a, h->tokens, 1.0f);
	for (int64_t i = 0; i < h->tokens; i += GP_ATTENTION_ROWS)
		forward_block(a, h, &r, i, rows_from(h, i));
	clear_padding(h->out, a, h);
}

/* --- backward --------------------------------------------------------------------------------------------------- */

static float dot_rows(const float *a, const float *b, int64_t n)
{
	struct lanes sum = lanes_all(0.0f);
	for (int64_t l = 0; l < n; l += LANES)
		sum = lanes_fma(lanes_load_some(a + l, n - l), lanes_load_some(b + l, n - l), sum);
	return lanes_sum(sum);
}

/* What a row's gradients are made of. */
struct row_terms {
	float largest, over_sum; /* as forward has kept them */
	float expected;          /* the weights' gradients, each times its weight, added up */
	float keep;
	const uint32_t *words;
	uint32_t threshold;
};

/* Scores become weights as forward used them; gradients of those become gradients of the scores. */
static void turn_row_back(float *scores, float *grads, int64_t columns, const struct row_terms *t)
{
	for (int64_t j = 0; j < columns; j += LANES) {
		const struct lanes e = lanes_exp(lanes_subtract(lanes_load(scores + j), lanes_all(t->largest)));
		const struct lanes weight = lanes_multiply(e, lanes_all(t->over_sum));
		struct lanes used = lanes_multiply(weight, lanes_all(t->keep));
		struct lanes grad = lanes_multiply(lanes_load(grads + j), lanes_all(t->keep));
		if (t->words) {
			used = lanes_unless_word_below(t->words + j, t->threshold, used);
			grad = lanes_unless_word_below(t->words + j, t->threshold, grad);
		}
		lanes_store(scores + j, used);
		lanes_store(grads + j, lanes_multiply(weight, lanes_subtract(grad, lanes_all(t->expected))));
	}
}

static void backward_row(const struct gp_attention *a, const struct gp_attention_head *h, int64_t i, float *scores,
			 float *grads, uint32_t *words)
{
	const int64_t at = i * a->stride;
	ask_for_row(a, h, i);
	mask_row(scores, h);
	const struct row_terms t = {.largest = h->sums[2 * i],
				    .over_sum = h->sums[2 * i + 1],
				    .expected = dot_rows(h->dout + at, h->out + at, a->width),
				    .keep = a->keep,
				    .words = a->threshold ? words_of_row(a, h, i, words) : NULL,
				    .threshold = a->threshold};
	turn_row_back(scores, grads, lanes_whole(h->tokens), &t);
}

/* Products of rows of the room with a packed matrix of the head. */
static void multiply_block(float *c, const float *rows, const float *packed, const struct attention_room *r, int64_t n,
			   const struct gp_attention *a, const struct gp_attention_head *h)
{
	lanes_multiply_matrix(&(struct lanes_product){.c = c,
						      .ldc = r->ld,
						      .a = rows,
						      .lda = r->wide,
						      .b = {packed, 0},
						      .rows = n,
						      .inner = a->width,
						      .columns = lanes_whole(h->tokens)});
}

/* sums (tokens, wide) (+)= weights' rows, with rows (n, tokens) of weights or of scores' gradients */
static void add_turned(float *sums, const float *weights, const float *rows, const struct attention_room *r, int64_t n,
		       int64_t tokens, bool onto)
{
	lanes_multiply_turned(&(struct lanes_product){.c = sums,
						      .ldc = r->wide,
						      .a = weights,
						      .lda = r->ld,
						      .b = {rows, r->wide},
						      .rows = tokens,
						      .inner = n,
						      .columns = r->wide,
						      .onto = onto});
}

/* Queries [i, i + n). */
static void backward_block(const struct gp_attention *a, const struct gp_attention_head *h,
			   const struct attention_room *r, int64_t i, int64_t n)
{
	take_rows(r->queries, r->wide, h->q + i * a->stride, a, n, a->scale);
	take_rows(r->dout, r->wide, h->dout + i * a->stride, a, n, 1.0f);
	multiply_block(r->scores, r->queries, r->keys, r, n, a, h);
	multiply_block(r->grads, r->dout, r->values, r, n, a, h);
	for (int64_t k = 0; k < n; k++)
		backward_row(a, h, i + k, r->scores + k * r->ld, r->grads + k * r->ld, r->words);
	if (h->dv)
		add_turned(r->dvalues, r->scores, r->dout, r, n, h->tokens, i > 0);
	if (h->dk)
		add_turned(r->dkeys, r->grads, r->queries, r, n, h->tokens, i > 0);
	if (!h->dq)
		return;
	lanes_multiply_matrix(&(struct lanes_product){.c = r->block,
						      .ldc = r->wide,
						      .a = r->grads,
						      .lda = r->ld,
						      .b = {r->key_rows, r->wide},
						      .rows = n,
						      .inner = h->tokens,
						      .columns = r->wide});
	give_rows(h->dq + i * a->stride, r->block, r->wide, a, n, a->scale);
}

static void backward_head(const struct gp_attention *a, const struct gp_attention_head *h, float *room)
{
	struct attention_room r;
	gp_attention_lay_out(&r, a->most, a->width, room, true);
	lanes_pack_turned(r.keys, h->k, a->stride, h->tokens, a->width);
	lanes_pack_turned(r.values, h->v, a->stride, h->tokens, a->width);
	take_rows(r.key_rows, r.wide, h->k, a, h->tokens, 1.0f);
	for (int64_t i = 0; i < h->tokens; i += GP_ATTENTION_ROWS)
		backward_block(a, h, &r, i, rows_from(h, i));
	give_rows(h->dv, r.dvalues, r.wide, a, h->tokens, 1.0f);
	give_rows(h->dk, r.dkeys, r.wide, a, h->tokens, 1.0f);
	clear_padding(h->dq, a, h);
	clear_padding(h->dk, a, h);
	clear_padding(h->dv, a, h);
}

#endif
