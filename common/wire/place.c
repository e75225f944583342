/* SPDX-License-Identifier: Apache-2.0
 *
 * See place.h. Test: tests/unit/test_resume_places.c
 */
#include "common/wire/place.h"

#include <string.h>

void gp_place_write(const struct gp_place *from, int acts, int grads, Gpsplit__Place *out)
{
	out->act = (uint64_t *)from->act;
	out->n_act = (size_t)acts;
	out->grad = (uint64_t *)from->grad;
	out->n_grad = (size_t)grads;
	out->squares = from->squares;
}

enum gp_status gp_place_read(const Gpsplit__Place *m, int acts, int grads, struct gp_place *out, struct gp_err *err)
{
	if (m->n_act != (size_t)acts || m->n_grad != (size_t)grads)
		GP_FAIL(err, GP_PROTO, "a place of %zu activations and %zu gradients, where %d and %d come", m->n_act,
			m->n_grad, acts, grads);
	memset(out, 0, sizeof *out);
	memcpy(out->act, m->act, m->n_act * sizeof *m->act);
	memcpy(out->grad, m->grad, m->n_grad * sizeof *m->grad);
	out->squares = m->squares;
	return GP_OK;
}
