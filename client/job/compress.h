/* SPDX-License-Identifier: Apache-2.0
 *
 * --compress STRUCTURE=SPEC[,STRUCTURE=SPEC...]: which structures of a training
 * lie encoded in memory, or pass through a codec after each use, and by which
 * codec (common/codec/codec_store.h). The specs have commas and = of their own:
 * a structure begins where its name does.
 *
 * Threads: any (pure functions). Test: tests/unit/test_compress.c
 */
#ifndef GP_COMPRESS_H
#define GP_COMPRESS_H

#include "common/wire/session_spec.h"

#define GP_COMPRESS_CODECS "fp16, bf16, fp8, s2fp8, smaq, uniform, sortquant"
#define GP_COMPRESS_TEXT   ((GP_STRUCTS + 1) * (GP_CODEC_SPEC_MAX + 16) + 32)

/* Into maps, coded and no_master; `text` NULL: nothing is compressed. GP_USAGE: no such structure, or no such codec for it. */
enum gp_status gp_compress_parse(const char *text, struct gp_session_spec *out, struct gp_err *err);

/* The same as text, with the codecs' parameters, as parse takes it; "": nothing is compressed. Returns text. */
const char *gp_compress_text(const struct gp_session_spec *s, char text[GP_COMPRESS_TEXT]);

#endif
