/* SPDX-License-Identifier: Apache-2.0
 *
 * A sample of a payload, for byte stages that ask before they work whether it
 * would pay.
 *
 * Threads: one at a time, as for the codec that uses it (common/codec/codec.h). Test:
 * tests/unit/test_codec_bytes.c
 */
#ifndef GP_CODEC_SAMPLE_H
#define GP_CODEC_SAMPLE_H

#include "common/base/mem.h"

/* Payloads from GP_SAMPLE_FROM bytes on are judged by GP_SAMPLE_BYTES of them. A stage pays that saves 1 byte in
 * GP_SAMPLE_GAIN. */
enum { GP_SAMPLE_FROM = 128 << 10, GP_SAMPLE_BYTES = 16 << 10, GP_SAMPLE_GAIN = 50 };

/* Pieces from all over in.len >= GP_SAMPLE_BYTES: the head of a payload is not like its body. Each begins at a multiple
 * of 8. */
void gp_sample_take(struct gp_span in, uint8_t out[GP_SAMPLE_BYTES]);

/* The most bytes that `len` may become for a stage to pay. */
static inline size_t gp_sample_most(size_t len)
{
	return len == 0 ? 0 : len - len / GP_SAMPLE_GAIN - 1;
}

#endif
