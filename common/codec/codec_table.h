/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of codecs: one row each, with its id on the wire (pinned, never
 * reused), its name, and whether it has kernels for a GPU (1:
 * kernels/cuda/codec defines gp_cuda_codec_NAME; 0: it works on the host
 * there, too). From the rows come enum gp_codec_id, the declarations of all
 * gp_codec_NAME (codec_impl.h) and gp_cuda_codec_NAME (cuda_codec_table.h),
 * the registry, the stages of a GPU, and the fuzz targets fuzz_codec_NAME,
 * whose names tests/CMakeLists.txt reads here: one row a line.
 *
 * To add a codec: CODECS.md, last section.
 *
 * Threads: any (constant table). Test: tests/unit/test_codec_spec.c
 */
#ifndef GP_CODEC_TABLE_H
#define GP_CODEC_TABLE_H

#define GP_CODECS(X)                                                                                                   \
	X(1, raw, 1)                                                                                                   \
	X(2, fp16, 1)                                                                                                  \
	X(3, bf16, 1)                                                                                                  \
	X(4, uniform, 1)                                                                                               \
	X(5, sortquant, 1)                                                                                             \
	X(6, fp8, 1)                                                                                                   \
	X(7, s2fp8, 1)                                                                                                 \
	X(8, smaq, 1)                                                                                                  \
	X(9, qsgd, 1)                                                                                                  \
	X(10, qsgdinf, 1)                                                                                              \
	X(11, nuqsgd, 1)                                                                                               \
	X(12, terngrad, 1)                                                                                             \
	X(13, alq, 1)                                                                                                  \
	X(14, amq, 1)                                                                                                  \
	X(15, kmeans, 1)                                                                                               \
	X(16, bdi, 0)                                                                                                  \
	X(17, topk, 1)                                                                                                 \
	X(18, downsample, 1)                                                                                           \
	X(19, poweriter, 1)                                                                                            \
	X(20, zstd, 0)                                                                                                 \
	X(21, bitshuffle, 0)                                                                                           \
	X(22, ef, 1)                                                                                                   \
	X(23, delta, 0)                                                                                                \
	X(25, block, 1)                                                                                                \
	X(26, mxfp8, 1)                                                                                                \
	X(27, mxfp6, 1)                                                                                                \
	X(28, mxfp4, 1)                                                                                                \
	X(29, nvfp4, 1)                                                                                                \
	X(30, rans, 0)                                                                                                 \
	X(31, hadamard, 1)

#endif
