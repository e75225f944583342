/* SPDX-License-Identifier: Apache-2.0
 *
 * The one table of codecs. Wire ids are pinned in each codec's ops and checked
 * by the test; a retired id is never given to another codec.
 * Description of each: CODECS.md. Test: tests/unit/test_codec_spec.c
 */
#include "common/codec_impl.h"

static const struct gp_codec_ops *const codecs[] = {
	&gp_codec_raw,       /* 1 */
	&gp_codec_fp16,      /* 2 */
	&gp_codec_bf16,      /* 3 */
	&gp_codec_uniform,   /* 4 */
	&gp_codec_sortquant, /* 5 */
};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

const struct gp_codec_ops *gp_codec_ops_at(int index)
{
	return index >= 0 && index < CODECS ? codecs[index] : NULL;
}

const struct gp_codec_ops *gp_codec_ops_by_id(uint16_t id)
{
	for (int i = 0; i < CODECS; i++)
		if (codecs[i]->id == id)
			return codecs[i];
	return NULL;
}

const struct gp_codec_ops *gp_codec_ops_by_name(const char *name)
{
	for (int i = 0; i < CODECS; i++)
		if (strcmp(codecs[i]->info.name, name) == 0)
			return codecs[i];
	return NULL;
}

const struct gp_codec_info *gp_codec_info(int index)
{
	const struct gp_codec_ops *ops = gp_codec_ops_at(index);
	return ops ? &ops->info : NULL;
}
