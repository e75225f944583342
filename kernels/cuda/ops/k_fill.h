/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers that belong to no op: conversion of element types, sums. Shapes are
 * flat; pointers are device memory.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_rt.c
 */
#ifndef GP_K_FILL_H
#define GP_K_FILL_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to[i] = from[i]; either may be of either type; nearest, even. */
void gpk_convert(struct gp_rt_stream *s, enum gp_rt_type to_type, void *to, enum gp_rt_type from_type, const void *from,
		 int64_t n);
/* *sum = sum of x[i]^2 in double, in an order that depends on n alone. `room`: GPK_SQUARES_ROOM doubles of device memory. */
#define GPK_SQUARES_ROOM 256
void gpk_squares(struct gp_rt_stream *s, const float *x, int64_t n, double *room, double *sum);

#ifdef __cplusplus
}
#endif
#endif
