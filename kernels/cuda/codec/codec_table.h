/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of cuda_codec.c, one per stage that works on a GPU: id, open, close,
 * bytes, regions, loaded, back_up, undo and the functions that see tensors.
 *
 * Threads: any (constant tables). Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_CODEC_TABLE_H
#define GP_CODEC_TABLE_H

#include "common/codec/codec_impl.h"

extern const struct gp_codec_ops gp_cuda_codec_raw, gp_cuda_codec_fp16, gp_cuda_codec_bf16, gp_cuda_codec_uniform;
extern const struct gp_codec_ops gp_cuda_codec_fp8, gp_cuda_codec_s2fp8, gp_cuda_codec_sortquant, gp_cuda_codec_topk;
extern const struct gp_codec_ops gp_cuda_codec_poweriter, gp_cuda_codec_qsgd, gp_cuda_codec_qsgdinf,
	gp_cuda_codec_nuqsgd;
extern const struct gp_codec_ops gp_cuda_codec_smaq, gp_cuda_codec_terngrad, gp_cuda_codec_alq, gp_cuda_codec_amq;
extern const struct gp_codec_ops gp_cuda_codec_downsample, gp_cuda_codec_kmeans, gp_cuda_codec_ef;

#endif
