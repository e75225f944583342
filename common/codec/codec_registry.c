/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds a codec by its place in the table (codec_table.h), its id and its name.
 * Description of each: CODECS.md. Test: tests/unit/test_codec_spec.c
 */
#include "common/codec/codec_impl.h"

#define ROW(id, name, gpu) &gp_codec_##name,
static const struct gp_codec_ops *const codecs[] = {GP_CODECS(ROW)};
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
