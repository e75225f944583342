/* SPDX-License-Identifier: Apache-2.0
 *
 * The stages that work on a GPU: gp_cuda_codec_NAME for each row of
 * common/codec/codec_table.h whose last column is 1. Each gives open, close,
 * bytes, regions, loaded, back_up, undo, codes_written and the functions that see
 * tensors; cuda_codec.c takes the rest, the id included, from the host's stage.
 *
 * Threads: any (constant tables). Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_CUDA_CODEC_TABLE_H
#define GP_CUDA_CODEC_TABLE_H

#include "common/codec/codec_impl.h"

#define GP_CUDA_CODEC_0(name)
#define GP_CUDA_CODEC_1(name)        extern const struct gp_codec_ops gp_cuda_codec_##name;
#define GP_CUDA_CODEC(id, name, gpu) GP_CUDA_CODEC_##gpu(name)
GP_CODECS(GP_CUDA_CODEC)
#undef GP_CUDA_CODEC

#endif
