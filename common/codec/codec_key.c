/* SPDX-License-Identifier: Apache-2.0
 *
 * What a codec's key takes, and its values as text. Reading them is
 * common/base/value.h. Test: tests/unit/test_codec_spec.c
 */
#include "common/codec/codec_impl.h"

struct gp_value_form gp_codec_key_form(const struct gp_codec_key *key)
{
	if (key->words)
		return (struct gp_value_form){.type = GP_VALUE_CHOICE, .choices = key->words};
	return (struct gp_value_form){.type = GP_VALUE_DECIMAL,
				      .min = key->min,
				      .max = key->max,
				      .or_zero = key->or_zero,
				      .decimals = key->decimals};
}

const char *gp_codec_key_print(const struct gp_codec_key *key, double value, char text[GP_SHOWN])
{
	struct gp_text word, rest = gp_text_of(key->words ? key->words : "");
	if (!key->words)
		return gp_decimal_text(value, key->decimals, text);
	for (int i = 0; i <= (int)value; i++)
		gp_require(gp_text_cut(&rest, '|', &word));
	gp_text_copy(word, text, GP_SHOWN);
	return text;
}

const char *gp_codec_ops_keys_text(const struct gp_codec_ops *ops, char *text, size_t size)
{
	char initial[GP_SHOWN], range[GP_VALUE_WHY];
	text[0] = '\0';
	for (int i = 0; i < ops->keys; i++) {
		const struct gp_value_form form = gp_codec_key_form(&ops->key[i]);
		gp_text_append(text, size, "%s%s=%s (%s)", i ? ", " : "", ops->key[i].name,
			       gp_value_range(&form, range),
			       gp_codec_key_print(&ops->key[i], ops->key[i].initial, initial));
	}
	return text;
}
