/* SPDX-License-Identifier: Apache-2.0
 *
 * --compress STRUCTURE=SPEC[,STRUCTURE=SPEC...]: which structures of a training
 * lie encoded in memory, and by which codec (common/codec/codec_store.h). The
 * specs have commas and = of their own: a structure begins where its name does.
 *
 * Threads: any (pure functions). Test: tests/unit/test_compress.c
 */
#ifndef GP_COMPRESS_H
#define GP_COMPRESS_H

#include "common/codec/codec.h"

#define GP_COMPRESS_CODECS "fp16, bf16, fp8, s2fp8, smaq, uniform, sortquant"

/* NULL, or maps=SPEC; without it *maps is zeroed. GP_USAGE: no such structure, or no such codec for it. */
enum gp_status gp_compress_parse(const char *text, struct gp_codec_spec *maps, struct gp_err *err);

#endif
