/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of codec specs for tests and bench_codec: the examples that each codec
 * names (info.examples in common/codec/codec.h), and chains of several codecs
 * that a test adds.
 *
 * Threads: one at a time per list.
 */
#ifndef CODEC_SPECS_H
#define CODEC_SPECS_H

#include "common/codec/codec.h"

enum { CODEC_SPECS_MOST = 1024 };

struct codec_specs {
	const char *text[CODEC_SPECS_MOST]; /* borrowed */
	int count;
};

static inline void codec_specs_add(struct codec_specs *list, const char *text)
{
	gp_require(list->count < CODEC_SPECS_MOST);
	list->text[list->count++] = text;
}

/* Whether the chain can code a tensor of this shape. */
static inline bool codec_takes(const char *text, const struct gp_shape *shape)
{
	struct gp_codec_spec spec;
	struct gp_err err = {0};
	uint64_t bytes;
	gp_require(gp_codec_spec_parse(text, &spec, &err) == GP_OK);
	return gp_codec_bound_for(&spec, shape, &bytes, &err) == GP_OK;
}

/* The examples of all codecs, in the table's order, that can code a tensor of this shape. */
static inline void codec_specs_add_examples(struct codec_specs *list, const struct gp_shape *shape)
{
	for (int i = 0; gp_codec_info(i); i++)
		for (const char *const *text = gp_codec_info(i)->examples; *text; text++)
			if (codec_takes(*text, shape))
				codec_specs_add(list, *text);
}

#endif
