/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors through a codec with `rans` behind it and through the same without, for tests of what the stage does to codes. Include
 * it behind cmocka.h.
 */
#ifndef GP_TEST_RANS_RIG_H
#define GP_TEST_RANS_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"

static const struct gp_codec_pass rans_rig_pass; /* of a codec that nobody stops */

/* Bytes with `spec`, whose tensor has to arrive as without `+rans...`. */
static size_t rans_rig_bytes(const char *spec, const struct gp_shape *shape, const float *x)
{
	char plain[80];
	struct gp_err err;
	const size_t n = (size_t)gp_shape_elements(shape);
	float *y = malloc(2 * n * sizeof *y), *z = y + n;
	size_t len[2];
	snprintf(plain, sizeof plain, "%.*s", (int)(strstr(spec, "+rans") - spec), spec);
	for (int i = 0; i < 2; i++) {
		struct gp_codec_spec parsed;
		struct gp_codec *c;
		if (gp_codec_spec_parse(i ? spec : plain, &parsed, &err) != GP_OK ||
		    gp_codec_new(&parsed, shape, 1, &c, &err) != GP_OK)
			fail_msg("%s: %s", spec, err.text);
		uint8_t *out = malloc(gp_codec_bound(c));
		assert_int_equal(gp_codec_encode(c, x, 0, out, gp_codec_bound(c), &len[i], &err), GP_OK);
		if (gp_codec_decode(c, (struct gp_span){out, len[i]}, i ? z : y, &err) != GP_OK)
			fail_msg("%s: %s", spec, err.text);
		free(out);
		gp_codec_free(c);
	}
	assert_memory_equal(y, z, n * sizeof *y);
	free(y);
	return len[1];
}

/* A payload in memory of its own, so that a sanitizer sees what lies behind it. */
static enum gp_status rans_rig_expand(void *rans, const uint8_t *bytes, size_t len, uint8_t *back, size_t most)
{
	struct gp_err err;
	uint8_t *exact = malloc(len ? len : 1);
	memcpy(exact, bytes, len);
	const enum gp_status status =
		gp_codec_rans.expand(rans, &rans_rig_pass, (struct gp_span){exact, len}, back, most, &err);
	free(exact);
	return status;
}

#endif
