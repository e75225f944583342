/* SPDX-License-Identifier: Apache-2.0
 *
 * What fp8 and s2fp8 of the host and of devices share.
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_fp8.c
 */
#ifndef GP_CODEC_FP8_H
#define GP_CODEC_FP8_H

#include "common/codec/codec_impl.h"

/* Values of fp8's key "format". */
enum { GP_FP8_E5M2, GP_FP8_E4M3 };
/* Bytes of s2fp8's alpha and beta. */
enum { GP_S2FP8_HEAD = 8 };

/* Length and head of an s2fp8 payload of n elements, and what each magnitude of E5M2 stands for. GP_PROTO. */
enum gp_status gp_s2fp8_read_head(struct gp_span in, uint64_t n, float table[128], struct gp_err *err);

#endif
