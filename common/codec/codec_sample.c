/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of payloads. See codec_sample.h. Test: tests/unit/test_codec_bytes.c
 */
#include "common/codec/codec_sample.h"

#include <string.h>

enum { PIECES = 4, PIECE = GP_SAMPLE_BYTES / PIECES };

void gp_sample_take(struct gp_span in, uint8_t out[GP_SAMPLE_BYTES])
{
	const size_t apart = (in.len - PIECE) / (PIECES - 1) / 8 * 8;
	for (size_t i = 0; i < PIECES; i++)
		memcpy(out + i * PIECE, in.data + i * apart, PIECE);
}
