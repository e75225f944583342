/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of directions. See direction.h. Test: tests/unit/test_flows.c
 */
#include "common/wire/direction.h"

const struct gp_direction_info gp_direction_info[GP_DIRECTIONS] = {
	[GP_ACT_UP] =
		{.name = "act_up", .frame = GP_FRAME_ACT_UP, .up = true, .at_input = true, .partner = GP_GRAD_DOWN},
	[GP_ACT_DOWN] = {.name = "act_down", .frame = GP_FRAME_ACT_DOWN, .partner = GP_GRAD_UP},
	[GP_GRAD_UP] =
		{.name = "grad_up", .frame = GP_FRAME_GRAD_UP, .up = true, .gradient = true, .partner = GP_ACT_DOWN},
	[GP_GRAD_DOWN] = {.name = "grad_down",
			  .frame = GP_FRAME_GRAD_DOWN,
			  .gradient = true,
			  .at_input = true,
			  .partner = GP_ACT_UP},
};

bool gp_direction_of_frame(enum gp_frame_type type, enum gp_direction *out)
{
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		if (gp_direction_info[d].frame != type)
			continue;
		*out = (enum gp_direction)d;
		return true;
	}
	return false;
}
