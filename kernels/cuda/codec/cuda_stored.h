/* SPDX-License-Identifier: Apache-2.0
 *
 * Which codecs a GPU can keep arrays encoded by (k_codec_store.h), from their
 * specs.
 *
 * Threads: any (pure functions). Test: tests/unit/test_cuda_stored.c
 */
#ifndef GP_CUDA_STORED_H
#define GP_CUDA_STORED_H

#include "common/codec/codec.h"
#include "kernels/cuda/codec/k_codec_store.h"

/* `spec` has passed gp_store_check. GP_UNSUPPORTED: a GPU has no code for it; the text says what it has. */
enum gp_status gp_cuda_stored(const struct gp_codec_spec *spec, struct gpk_store *out, struct gp_err *err);
/* The same numbers of `smaq` for every kernel; value: of the spec's keys. */
struct gpk_smaq gp_cuda_smaq_numbers(const double *value);

#endif
