/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic texts: "synthetic:tokens=S,vocab=V,classes=K", or "synthetic" with S and
 * V of a model that reads texts. A sample has a length
 * between a quarter of S and S; tokens 1..V-1 stand in its first places, 0 fills
 * the rest, and mask and length tell them apart; the second half of them has type
 * 1, as the second text of a pair. The class decides the tokens: each is
 * drawn from the class's own (those of equal remainder by K), or, with the
 * probability `noise`, from all; so a mean of embeddings learns the classes. No
 * files; integer arithmetic, so the samples are the same on every machine.
 * Test: tests/unit/test_data_synthetic_tokens.c
 */
#include "client/data/data_internal.h"

#include <string.h>

#include "common/base/rng.h"

enum { TOKENS, MASK, LENGTH, TYPES, TENSORS };
enum { LENGTH_MOST = 65536, VOCAB_LEAST = 3, VOCAB_MOST = 1 << 24 };

struct texts {
	uint64_t seed, stream;
	uint32_t classes, length, vocab;
	uint64_t noise;  /* 2^32: every token is drawn from all */
	int64_t samples; /* of the training split */
};

static enum gp_status configure_texts(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	struct gp_text text;
	int64_t length = 128, vocab = 1000, seed = 0;
	double noise = 0.5;
	if (d->row > 0 && !gp_spec_given(spec, "tokens", &text)) {
		length = d->row < LENGTH_MOST ? d->row : LENGTH_MOST;
		vocab = d->row_values < VOCAB_LEAST  ? VOCAB_LEAST
			: d->row_values < VOCAB_MOST ? d->row_values
						     : VOCAB_MOST;
	}
	GP_TRY(gp_alloc_array(&d->self, 1, sizeof(struct texts), err));
	struct texts *t = d->self;
	t->samples = 10000;
	d->classes = 2;
	GP_TRY(gp_spec_int(spec, "tokens", 1, LENGTH_MOST, &length, err));
	GP_TRY(gp_spec_int(spec, "vocab", VOCAB_LEAST, VOCAB_MOST, &vocab, err));
	GP_TRY(gp_data_read_classes(spec, &d->classes, err));
	GP_TRY(gp_spec_int(spec, "samples", 1, 100000000, &t->samples, err));
	GP_TRY(gp_spec_real(spec, "noise", 0, 1, &noise, err));
	GP_TRY(gp_spec_int(spec, "seed", 0, INT64_MAX, &seed, err));
	if (vocab <= d->classes)
		GP_FAIL(err, GP_USAGE, "dataset synthetic: vocab: %lld is too small for %d classes with a token each",
			(long long)vocab, d->classes);
	t->length = (uint32_t)length;
	t->vocab = (uint32_t)vocab;
	t->classes = (uint32_t)d->classes;
	t->noise = (uint64_t)(noise * 0x1p32);
	t->seed = (uint64_t)seed;
	return GP_OK;
}

static enum gp_status open_texts(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				 const struct gp_dataset_options *options, struct gp_err *err)
{
	struct texts *t = d->self;
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {t->length}}};
	if (options->shape.ndim)
		GP_FAIL(err, GP_INVALID,
			"dataset synthetic with tokens= has no pictures to bring to a size; leave "
			"--input out");
	int64_t samples = t->samples;
	if (split == GP_SPLIT_VAL)
		samples = samples < 5 ? 1 : samples / 5;
	if (spec->limit && spec->limit < samples)
		samples = spec->limit;
	d->samples = (uint32_t)samples;
	d->tensors = TENSORS;
	d->tensor[TOKENS] = (struct gp_tensor_info){"tokens", row, t->vocab};
	d->tensor[MASK] = (struct gp_tensor_info){"mask", row, 2};
	d->tensor[LENGTH] =
		(struct gp_tensor_info){"length", {GP_I32, {.ndim = 1, .dim = {1}}}, (int64_t)t->length + 1};
	d->tensor[TYPES] = (struct gp_tensor_info){"types", row, 2};
	t->stream = gp_rng_stream(GP_RNG_SYNTHETIC, split == GP_SPLIT_TRAIN ? 3 : 4);
	return gp_data_name_classes(d, d->classes, NULL, err);
}

static void close_texts(struct gp_dataset *d)
{
	gp_free(d->self);
}

static int32_t label_of(const struct gp_dataset *d, uint32_t index)
{
	const struct texts *t = d->self;
	return (int32_t)(index % t->classes);
}

static uint32_t below(uint32_t word, uint32_t bound)
{
	return (uint32_t)((uint64_t)word * bound >> 32);
}

/* From all tokens, or from those t with t % classes == class: 1..vocab-1 has one of these at least. */
static int32_t draw_token(const struct texts *t, uint32_t class, const uint32_t w[2])
{
	if (w[0] < t->noise)
		return (int32_t)(1 + below(w[1], t->vocab - 1));
	const uint32_t first = class ? class : t->classes;
	return (int32_t)(first + t->classes * below(w[1], (t->vocab - 1 - first) / t->classes + 1));
}

/* Block 0 of a sample decides its length, each of the others two tokens. */
static enum gp_status write_text(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
				 void *const *tensor, struct gp_err *err)
{
	const struct texts *t = d->self;
	const uint64_t first_block = (uint64_t)index * (2 + t->length / 2);
	const uint32_t shortest = t->length / 4 ? t->length / 4 : 1;
	int32_t *tokens = tensor[TOKENS], *mask = tensor[MASK], *types = tensor[TYPES];
	uint32_t w[4];
	(void)scratch;
	(void)err;
	gp_rng_block(t->seed, t->stream, first_block, w);
	const uint32_t length = shortest + below(w[0], t->length - shortest + 1);
	for (uint32_t i = 0; i < length; i++) {
		if (i % 2 == 0)
			gp_rng_block(t->seed, t->stream, first_block + 1 + i / 2, w);
		tokens[i] = draw_token(t, index % t->classes, w + 2 * (i % 2));
		mask[i] = 1;
		types[i] = i >= length / 2;
	}
	*(int32_t *)tensor[LENGTH] = (int32_t)length;
	memset(tokens + length, 0, (t->length - length) * sizeof *tokens);
	memset(mask + length, 0, (t->length - length) * sizeof *mask);
	memset(types + length, 0, (t->length - length) * sizeof *types);
	return GP_OK;
}

const struct gp_dataset_class gp_data_synthetic_tokens = {
	.info = {.name = "synthetic",
		 .summary = "tokens whose frequencies tell the class, with mask and length, made on the fly",
		 .options = "tokens=128,vocab=1000,classes=2,samples=10000,noise=0.5,seed=0,limit=N,part=I/"
			    "N,dirichlet=A,part-seed=0"},
	.configure = configure_texts,
	.open = open_texts,
	.close = close_texts,
	.write = write_text,
	.label = label_of,
};
