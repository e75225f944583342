/* SPDX-License-Identifier: Apache-2.0
 *
 * The one table of codecs. Wire ids are pinned in each codec's ops and checked
 * by the test; a retired id is never given to another codec.
 * Description of each: CODECS.md. Test: tests/unit/test_codec_spec.c
 */
#include "common/codec/codec_impl.h"

/* Alphabetical order does not matter; one line per codec keeps changes apart. */
#define CODECS(X)                                                                                                      \
	X(raw)        /* 1 */                                                                                          \
	X(fp16)       /* 2 */                                                                                          \
	X(bf16)       /* 3 */                                                                                          \
	X(uniform)    /* 4 */                                                                                          \
	X(sortquant)  /* 5 */                                                                                          \
	X(fp8)        /* 6 */                                                                                          \
	X(s2fp8)      /* 7 */                                                                                          \
	X(smaq)       /* 8 */                                                                                          \
	X(qsgd)       /* 9 */                                                                                          \
	X(qsgdinf)    /* 10 */                                                                                         \
	X(nuqsgd)     /* 11 */                                                                                         \
	X(terngrad)   /* 12 */                                                                                         \
	X(alq)        /* 13 */                                                                                         \
	X(amq)        /* 14 */                                                                                         \
	X(kmeans)     /* 15 */                                                                                         \
	X(bdi)        /* 16 */                                                                                         \
	X(topk)       /* 17 */                                                                                         \
	X(downsample) /* 18 */                                                                                         \
	X(poweriter)  /* 19 */                                                                                         \
	X(zstd)       /* 20 */                                                                                         \
	X(bitshuffle) /* 21 */                                                                                         \
	X(ef)         /* 22 */                                                                                         \
	X(delta)      /* 23 */

#define DECLARE(name) extern const struct gp_codec_ops gp_codec_##name;
CODECS(DECLARE)

#define ROW(name) &gp_codec_##name,
static const struct gp_codec_ops *const codecs[] = {CODECS(ROW)};
enum { COUNT = sizeof codecs / sizeof codecs[0] };

const struct gp_codec_ops *gp_codec_ops_at(int index)
{
	return index >= 0 && index < COUNT ? codecs[index] : NULL;
}

const struct gp_codec_ops *gp_codec_ops_by_id(uint16_t id)
{
	for (int i = 0; i < COUNT; i++)
		if (codecs[i]->id == id)
			return codecs[i];
	return NULL;
}

const struct gp_codec_ops *gp_codec_ops_by_name(const char *name)
{
	for (int i = 0; i < COUNT; i++)
		if (strcmp(codecs[i]->info.name, name) == 0)
			return codecs[i];
	return NULL;
}

const struct gp_codec_info *gp_codec_info(int index)
{
	const struct gp_codec_ops *ops = gp_codec_ops_at(index);
	return ops ? &ops->info : NULL;
}

const char *gp_codec_kind_name(int index)
{
	static const char *const names[] = {[GP_CODEC_WRAPPER] = "wrapper",
					    [GP_CODEC_TRANSFORM] = "transform",
					    [GP_CODEC_QUANTIZER] = "quantizer",
					    [GP_CODEC_BYTES] = "byte stage"};
	const struct gp_codec_ops *ops = gp_codec_ops_at(index);
	return ops ? names[ops->kind] : NULL;
}

const struct gp_codec_key *gp_codec_key_info(int index, int k)
{
	const struct gp_codec_ops *ops = gp_codec_ops_at(index);
	return ops && k >= 0 && k < ops->keys ? &ops->key[k] : NULL;
}

const char *gp_codec_keys_text(int index, char *text, size_t size)
{
	const struct gp_codec_ops *ops = gp_codec_ops_at(index);
	gp_require(ops);
	return gp_codec_ops_keys_text(ops, text, size);
}
