/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h with NEON of ARM64. Test: tests/unit/test_cpu_attention.c
 */
#include "kernels/cpu/math/attention.h"

#include "kernels/cpu/math/attention_body.h"

void gp_attention_forward_neon(const struct gp_attention *a, const struct gp_attention_head *h, float *room)
{
	forward_head(a, h, room);
}

void gp_attention_backward_neon(const struct gp_attention *a, const struct gp_attention_head *h, float *room)
{
	backward_head(a, h, room);
}
